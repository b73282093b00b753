"""examples/pipeline/questions.py as its docstring says it is used."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from pyarrow import csv

from rmqlite.kernel.words.message import REDRIVEN_BY, Message
from tests.support.brokers import BrokerUnderTest
from tests.support.messages import save_group, send_back
from tests.support.pending import deliver_all
from tests.support.redrives import GROUP, bury_many, redrive

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "pipeline" / "questions.py"


@pytest.mark.usefixtures("spark")
def test_a_notebooks_cells_answer_the_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One redriven letter is dead again, one message was delivered, one comes due in the hour."""
    broker = BrokerUnderTest(tmp_path / "store")
    save_group(broker, group=GROUP)
    bury_many(broker, 2)
    job_id = redrive(broker).job_id
    message = next(each for each in broker.messages(f"%RETRY%{GROUP}"))
    assert message.properties[REDRIVEN_BY] == job_id
    send_back(broker, message, group=GROUP, delay_level=-1, reason="card refused")
    broker.send(Message("reminders", b"x", delay_level=1))
    deliver_all(broker)
    broker.send(Message("sale", b"x", deliver_after="1h30m"))
    broker.close()
    output = tmp_path / "levels.csv"
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(broker.config.store_path), str(output)])
    runpy.run_path(str(SCRIPT))
    lines = [line.replace("|", " ").split() for line in capsys.readouterr().out.splitlines()]
    assert ["%DLQ%shop:0:0", "card", "refused"] in lines
    assert ["sale", "1", "1"] in lines
    (cost,) = [line for line in lines if line[:2] == [GROUP, "orders"]]
    assert cost[2:5] == ["3", "0", "3"]
    (level,) = csv.read_csv(output).to_pylist()
    assert (level["real_topic"], level["due"], level["is_met"]) == ("reminders", 1, True)


@pytest.mark.parametrize("words", [(), ("store",), ("store", "levels.csv", "more")])
def test_without_its_arguments_it_says_what_it_wants(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """It was a ValueError about values to unpack; and Spark is not started."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    with pytest.raises(SystemExit, match="give a store's folder and a file for the table: python"):
        runpy.run_path(str(SCRIPT))
