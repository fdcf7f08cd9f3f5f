"""The page of open questions: every one is told, with its verdict or with how to get one."""

from nqlab.analysis import studies
from nqlab.analysis.open_questions import open_questions
from tests.ui.conftest import page_of


def draw():
    from nqlab.ui.open_page import page

    page()


def test_every_question_has_a_verdict_or_says_how_to_get_one(own_runs):
    test = page_of(draw)
    told = " ".join(m.value for m in test.markdown)
    known = {filled.study.name for filled in studies.shipped()}
    missing = [question for question in open_questions() if question.study not in known]
    for question in open_questions():
        assert question.title in told
        assert f"Still open: {question.remains}" in " ".join(c.value for c in test.caption)
    assert len(test.info) == len(missing)
    for info, question in zip(test.info, missing):
        assert f"data/reference/{question.study}.json" in info.value
