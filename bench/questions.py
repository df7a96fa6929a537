"""The table of questions: what `python -m bench NAME` knows. A new question is a file and a row here."""

from __future__ import annotations

from bench import (
    epoch_start,
    iterate,
    ledger,
    length_groups,
    loader,
    memory,
    resume,
    tar_index,
    throughput,
    torch_order,
    webdataset,
)
from bench.runner import Question

QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in (
        epoch_start.QUESTION,
        iterate.QUESTION,
        ledger.QUESTION,
        length_groups.QUESTION,
        length_groups.TIME,
        loader.QUESTION,
        memory.QUESTION,
        resume.QUESTION,
        tar_index.QUESTION,
        throughput.QUESTION,
        torch_order.QUESTION,
        webdataset.QUESTION,
        webdataset.RESUME,
        webdataset.BYTES,
    )
}
