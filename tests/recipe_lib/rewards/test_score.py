"""`python -m recipe_lib score`: a verdict and its reason for each row, bad rows named."""

import json

import pytest

from recipe_lib.__main__ import main


@pytest.fixture
def score(tmp_path, capsys):
    def run(rows, *arguments):
        path = tmp_path / "rows.jsonl"
        path.write_text(
            "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
        )
        code = main(["score", str(path), *arguments])
        return code, *capsys.readouterr()

    return run


def test_verdicts_with_their_reasons(score):
    rows = [
        {"id": "angle", "completion": "<think>a</think><answer>130°</answer>", "solution": "130"},
        {"completion": [{"role": "assistant", "content": "The answer is 3"}], "gold": "3"},
        {"completion": "\\boxed{C}", "solution": "154°", "options": {"B": "77°", "C": "154°"}},
        {"completion": "\\boxed{C}", "solution": ""},
    ]
    code, out, err = score(rows)
    assert code == 0
    first, second, third, fourth = out.splitlines()
    assert first.split() == ["1.00", "angle", "number", "answer", "'130°'", "gold", "'130'"]
    assert "0.00" in second and "no answer" in second and "line 2" in second
    assert "1.00" in third and "letter" in third
    assert "none" in fourth and "gold unreadable" in fourth
    assert "4 rows: mean 0.667, 1 abstained (gold unreadable), 0 bad rows" in err


def test_bad_rows_are_named_and_the_rest_is_scored(score):
    rows = [
        "{not json",
        "",
        [1],
        '"text"',
        {"completion": "a"},
        {"solution": "3"},
        {"completion": "\\boxed{3}", "solution": "3"},
    ]
    rows.append({"completion": "\\boxed{3}", "solution": "3", "options": ["1", "3"]})
    code, out, err = score(rows)
    assert code == 1
    assert len(out.splitlines()) == 1
    assert "line 1: no JSON" in err and "line 3: a JSON object is needed, not list" in err and "line 4: " in err
    assert "line 5: no solution among the keys completion" in err
    assert "line 6: no completion among the keys solution" in err
    assert "line 8: options must be a mapping from letter to text, not list" in err
    assert "6 bad rows" in err


def test_other_rewards_styles_and_json(score):
    row = {"completion": "a</think><answer>132</answer>", "solution": "130"}
    code, out, _ = score([row], "--reward", "closeness", "--tolerance", "2", "--think-prefilled", "--json")
    expected = {"line": 1, "id": None, "score": 1.0, "answer": "132", "gold": "130", "path": "within 2"}
    assert code == 0 and json.loads(out) == expected
    _, out, _ = score([{"completion": "a</think><answer>3</answer>"}], "--reward", "format", "--json")
    assert json.loads(out)["path"] == "<think> stands 0 times"
    _, out, _ = score([row], "--reward", "graded_format", "--json")
    assert json.loads(out)["score"] == pytest.approx(0.65)
    _, out, _ = score([{"completion": "It is 5", "solution": "5"}], "--style", "direct", "--json")
    assert json.loads(out)["score"] == 1.0


def test_wrong_calls(score, capsys, tmp_path):
    assert main(["score", str(tmp_path / "none.jsonl")]) == 2
    assert "cannot read" in capsys.readouterr().err
    with pytest.raises(SystemExit) as exit_:
        main(["score", "x", "--reward", "beauty"])
    assert exit_.value.code == 2
    assert "accuracy" in capsys.readouterr().err
    with pytest.raises(SystemExit) as exit_:
        main(["score", "--help"])
    assert exit_.value.code == 0


def test_lines_end_where_json_lines_end(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    row = {"completion": "<think>a\u2028b</think><answer>5</answer>", "solution": "5"}
    half = {"completion": "<think>a</think><answer>\ud800</answer>", "solution": "5"}
    lines = [json.dumps(row, ensure_ascii=False), json.dumps(half), "[" * 100_000, '"a text"']
    path.write_text("\n".join(lines), encoding="utf-8-sig")
    assert main(["score", str(path), "--json"]) == 1
    out, err = capsys.readouterr()
    assert [json.loads(line)["score"] for line in out.splitlines()] == [1.0, 0.0]
    assert "bad row, line 3: no JSON" in err and "line 4: a JSON object is needed, not str" in err


@pytest.mark.parametrize(("flag", "value"), [("--tolerance", "-1"), ("--tolerance", "nan"), ("--deadline", "inf")])
def test_numbers_that_are_none(score, flag, value):
    code, _, err = score([{"completion": "5", "solution": "5"}], "--reward", "closeness", flag, value)
    assert code == 2 and err.startswith(f"error: {flag} {value}: a number from 0 on")
