from __future__ import annotations

import re
from pathlib import Path

from nqlab.analysis.run_document import curves_figure, document
from tests.runs.test_store import DOCS, created, worked
from tests.small import small


def test_a_run_as_a_page_holds_curve_configuration_and_receipt_and_loads_nothing(runs_dir: Path) -> None:
    (run,) = created(runs_dir, small(**DOCS, query="nonlinear", steps=3))
    worked([run])
    run.relabel(name="<blue> fox", note="né & more", tags=["lecture"])
    page = document(run)
    text = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert "<h1>&lt;blue&gt; fox</h1>" in text
    assert all(part in text for part in ("né &amp; more", "lecture", "training.learning_rate", "0.003", run.meta["versions"]["torch"]))
    assert "Plotly.newPlot" in page
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=", page)


def test_curves_of_several_runs_stand_in_one_chart_with_their_texts_levels(runs_dir: Path) -> None:
    runs = created(runs_dir, small(**DOCS, steps=3), small(**DOCS, steps=3, query="identity"))
    worked(runs)
    figure = curves_figure(runs)
    validation = [trace for trace in figure.data if trace.uid.endswith("-val")]
    assert [trace.name for trace in validation] == [run.name for run in runs]
    assert [list(trace.x) for trace in validation] == [[0, 3]] * 2
    assert [a.text.rsplit(" ", 1)[0] for a in figure.layout.annotations] == ["ln V", "unigram entropy", "bigram entropy"]
