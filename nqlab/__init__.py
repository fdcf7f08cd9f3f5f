"""nqlab: does a transformer need a linear query projection? A small lab to find out.

The package trains character-level GPT variants that differ in how the query of attention is made.
Imports point one way: ``ui`` -> ``analysis``, ``runs`` -> ``training`` -> ``model`` -> ``config``.
"""

__version__ = "0.1.0"
