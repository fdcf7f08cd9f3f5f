"""An update's loss and gradient as machine code: compiled by a process of its own, taken up when it is ready.

Compiling takes tens of seconds, most of them in Python. In a thread it would hold the interpreter's lock against the
training loop, so a child process does it: it traces loss and gradient as one graph of tensors and has torch's
ahead-of-time compiler (AOTInductor) write a library. The loop loads that between two updates. Weights are its
inputs, so it serves every run of that shape, and there are no guards: nothing is ever compiled again.

The optimiser, evaluations and samples stay as they are.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nqlab.config import ModelConfig, RunConfig
from nqlab.model.gpt import GPT

NICENESS = 10  # the run it is for has the first call on the processor
# How far the compiled function may be off: its loss in nats, its gradient as a part of the norm. Rounding in float32
# makes 1e-6 of either; but a ReLU whose input is zero to rounding may come out on its other side, seen to make 2e-4.
TOLERANCE = {"float32": (1e-5, 1e-3), "bfloat16": (1e-2, 5e-2)}
PACKAGE, MESSAGE = "loss.pt2", "message"

Failure = str  # one line: why there is no compiled function
LossAndGradient = Callable[[Tensor, Tensor], Tensor]  # ids and targets (B, T) -> loss; the gradients are added or laid in place


@dataclass(frozen=True)
class Job:
    """What decides the machine code: the model, the batch (B, T), number format, device, and CPU threads."""

    model: ModelConfig
    vocab_size: int
    batch_size: int
    dtype: str
    device: str
    threads: int

    @classmethod
    def of(cls, config: RunConfig, vocab_size: int, device: torch.device) -> Job:
        """That of a run, on this process's threads."""
        training = config.training
        return cls(config.model.resolved(), vocab_size, training.batch_size, training.dtype, str(device), torch.get_num_threads())

    def to_json(self) -> str:
        """One line."""
        return json.dumps(vars(self) | {"model": self.model.model_dump()})

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Inverse of :meth:`to_json`."""
        data = json.loads(text)
        return cls(**data | {"model": ModelConfig.model_validate(data["model"])})


# --- in the training process


class CompiledLoss:
    """A function of (weights, ids, targets) that returns the loss and every weight's gradient; ``seconds``: it took that long."""

    def __init__(self, run: Callable[[list[Tensor], Tensor, Tensor], Sequence[Tensor]], seconds: float) -> None:
        self._run, self.seconds = run, seconds

    @classmethod
    def load(cls, package: Path, seconds: float) -> CompiledLoss:
        """The library in a file; raises what torch raises."""
        return cls(torch._inductor.aoti_load_package(str(package)), seconds)

    def bound(self, parameters: Iterable[nn.Parameter]) -> LossAndGradient:
        """The function of a batch alone, which lays the gradients into ``parameter.grad``.

        The parameters and gradients may change between calls, but must stay where they are in memory.
        """
        parameters = list(parameters)
        weights = [p.detach() for p in parameters]  # the same memory, without autograd
        gradients = [p.grad for p in parameters if p.grad is not None]
        assert len(gradients) == len(weights)

        def loss(x: Tensor, y: Tensor) -> Tensor:
            value, *found = self._run(weights, x, y)
            torch._foreach_copy_(gradients, found)
            return value

        return loss


class Builds:
    """The compilations of one race, one after another, each in a process of its own that ends with this one."""

    def __init__(self) -> None:
        self._made: dict[Job, CompiledLoss | Failure] = {}
        self._waiting: list[Job] = []
        self._child: _Child | None = None

    def __enter__(self) -> Builds:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None

    def get(self, job: Job) -> CompiledLoss | Failure | None:
        """The compiled function, or why there is none, or None as long as it is being made.

        Asking is what starts it. Costs microseconds, and a second or two at the moment it is ready: torch's loader
        is imported then.
        """
        if job not in self._made and job not in self._waiting:
            self._waiting.append(job)
        if self._child is not None and self._child.over():
            self._made[self._child.job] = self._child.outcome()
            self._waiting.remove(self._child.job)
            self._child = None
        if self._child is None and self._waiting:
            self._start(self._waiting[0])
        return self._made.get(job)

    def _start(self, job: Job) -> None:
        try:
            self._child = _Child(job)
        except OSError as error:
            self._waiting.remove(job)
            self._made[job] = f"the compiler's process could not be started ({error})"


class _Child:
    """A process that compiles one job into a folder. It lives no longer than the pipe to its standard input."""

    def __init__(self, job: Job) -> None:
        self.job, self._started = job, time.perf_counter()
        self._folder = Path(tempfile.mkdtemp(prefix="nqlab-compile-"))
        command = [sys.executable, "-m", "nqlab.training.compiled", job.to_json(), str(self._folder)]
        environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # no pool of processes for what takes seconds
        quiet = subprocess.DEVNULL
        try:
            # A session of its own: Ctrl-C is for the training process, and one signal ends it with its C++ compilers.
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
            )
        except OSError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def over(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    def outcome(self) -> CompiledLoss | Failure:
        """What it made; its folder goes."""
        code = self._process.returncode
        try:
            if code == 0:
                return CompiledLoss.load(self._folder / PACKAGE, time.perf_counter() - self._started)
            return (self._folder / MESSAGE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return f"the compiler's process ended with code {code}"
        except Exception as error:  # torch's loader, and what it imports: the run goes on without
            return f"torch could not load it ({_first_line(error)})"
        finally:
            self.end()

    def end(self) -> None:
        """End it, if it still works, and remove its folder."""
        if self._process.poll() is None:
            _end_group(self._process.pid)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _end_group(group: int) -> None:
    """SIGTERM to a session: a C++ compiler that gets it removes what it has half written, which torch might keep and use."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)


def tried(
    made: CompiledLoss | Failure,
    model: GPT,
    batch: tuple[Tensor, Tensor],
    dtype: str,
    autocast: Callable[[], Any] = nullcontext,
    seed: Callable[[], None] = lambda: None,
) -> tuple[LossAndGradient | None, str]:
    """The compiled function bound to a model's parameters, if it does on this batch what the model does; and a message.

    ``seed`` comes before each of the two, for dropout's masks. Gradients are left in ``parameter.grad``.
    """
    if isinstance(made, Failure):
        return None, f"training goes on without compilation: {made}"
    compiled = made.bound(model.parameters())
    try:
        loss_off, gradient_off = difference(compiled, model, batch, autocast, seed)
    except RuntimeError as error:
        return None, f"training goes on without compilation: the compiled update failed ({_first_line(error)})"
    found = f"its loss is {loss_off:.0e} off, its gradient {gradient_off:.0e} of its norm"
    limits = TOLERANCE[dtype]
    if not (loss_off <= limits[0] and gradient_off <= limits[1]):
        return None, f"training goes on without compilation: {found}, more than {limits[0]:.0e} and {limits[1]:.0e}"
    return compiled, f"compiled in {made.seconds:.0f} s; {found}"


def difference(
    compiled: LossAndGradient, model: GPT, batch: tuple[Tensor, Tensor], autocast: Callable[[], Any], seed: Callable[[], None]
) -> tuple[float, float]:
    """How far a compiled function is from the model's own: of the loss in nats, of the gradient as a part of its norm."""
    parameters = list(model.parameters())
    seed()
    with autocast():
        loss = model.loss(*batch)
    expected = torch.autograd.grad(loss, parameters)
    seed()
    loss_off = abs(compiled(*batch).item() - loss.item())
    off = [p.grad - e for p, e in zip(parameters, expected) if p.grad is not None]
    norms = [torch.stack([t.double().norm().cpu() for t in tensors]).norm().item() for tensors in (off, expected)]
    return loss_off, norms[0] / (norms[1] or 1.0)


# --- in the child


def loss_and_gradient(job: Job) -> tuple[Callable[..., tuple[Tensor, ...]], tuple[list[Tensor], Tensor, Tensor]]:
    """The function to compile, of (weights in the model's order, ids, targets), and inputs of the right shapes.

    It returns the loss and a gradient for each weight, as plain tensors.
    """
    device = torch.device(job.device)
    model = _Loss(GPT(job.model, job.vocab_size).to(device))
    names = [name for name, _ in model.named_parameters()]
    ids = torch.zeros(job.batch_size, job.model.block_size, dtype=torch.long, device=device)
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=job.dtype == "bfloat16")

    def function(weights: Iterable[Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        leaves = [w.detach().requires_grad_() for w in weights]
        with autocast:
            loss = torch.func.functional_call(model, dict(zip(names, leaves)), (x, y))
        return loss.detach(), *torch.autograd.grad(loss, leaves)

    return function, ([p.detach() for p in model.parameters()], ids, ids.clone())


class _Loss(nn.Module):
    """A model whose forward is its loss."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.model.loss(x, y)


class _Graph(nn.Module):
    """A traced function as a module, which is what torch exports."""

    def __init__(self, graph: nn.Module) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, weights: list[Tensor], x: Tensor, y: Tensor) -> Any:
        return self.graph(weights, x, y)


def compile_to(job: Job, package: Path) -> None:
    """Compile a job into a file for :class:`CompiledLoss`. Takes tens of seconds; raises whatever torch raises."""
    from torch.fx.experimental.proxy_tensor import make_fx

    torch.set_num_threads(job.threads)  # their number becomes part of the code
    function, example = loss_and_gradient(job)
    graph = make_fx(function, tracing_mode="fake")(*example)
    options = {
        "fallback_random": True,  # dropout's masks come from torch's own generator, as they do in the model
        "aot_inductor.compile_wrapper_opt_level": "O0",  # it only calls kernels, and takes longer than all other C++
    }
    with torch.no_grad():
        exported = torch.export.export(_Graph(graph), example)
        torch._inductor.aoti_compile_and_package(exported, package_path=str(package), inductor_configs=options)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _explain(error: Exception) -> Failure:
    text = str(error)
    if "InvalidCxxCompiler" in text or "No working C++ compiler" in text:
        return f"there is no working C++ compiler ({os.environ.get('CXX', 'g++')}); install g++, or name one in CXX"
    return f"torch could not compile it ({_first_line(error)})"


def _end_with_owner(folder: Path) -> None:
    """Wait for the end of standard input, which comes when the training process ends, however it does; then end too."""
    while os.read(0, 1):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    _end_group(0)


def main(text: str, folder: Path) -> int:
    """Compile one job into a folder: the package, or a message and exit code 1."""
    threading.Thread(target=_end_with_owner, args=[folder], daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    try:
        compile_to(Job.from_json(text), folder / PACKAGE)
    except Exception as error:  # whatever it is: the run goes on without
        (folder / MESSAGE).write_text(_explain(error), encoding="utf-8")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
