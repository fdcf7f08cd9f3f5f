"""The W_Q redundancy argument as algebra: where a query matrix can be absorbed by its neighbours, and where not.

``architecture`` holds the switches, ``structure`` says who writes and reads each state, ``rule`` what follows from it
for any combination of skips, norm, tie and sharing (all without torch); ``transform`` does it to weights; ``small`` is
the transformer it is checked on; ``cases`` are the ten cases of the argument; ``lemma`` is one attention layer,
``gauge`` the freedom inside a head, ``trained`` what both mean for a trained GPT; ``absorption`` and ``least_squares``
are the two neighbouring questions. Sources: arXiv:2510.23912, arXiv:2604.23705, arXiv:2604.13656.
"""
