from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from session_awareness import _ffi


@pytest.fixture(autouse=True)
def load_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ffi, "library", _ffi.library.__wrapped__)


def test_the_environment_alone_counts_when_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSION_AWARENESS_LIB", "/nowhere/lib.so")
    assert _ffi.candidates() == ["/nowhere/lib.so"]


def test_the_build_of_the_checkout_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SESSION_AWARENESS_LIB", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    name = "libsession_awareness.so"
    package = tmp_path / "bindings" / "python" / "src" / "session_awareness"
    monkeypatch.setattr(_ffi, "__file__", str(package / "_ffi.py"))
    target = tmp_path / "target"
    folders = [package, target / "release", target / "debug"]
    assert _ffi.candidates() == [*(str(folder / name) for folder in folders), name]
    installed = tmp_path / "site-packages" / "session_awareness"
    monkeypatch.setattr(_ffi, "__file__", str(installed / "_ffi.py"))
    assert _ffi.candidates() == [str(installed / name), name]


def test_what_was_tried_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ffi, "candidates", lambda: ["/nowhere/a.so", "/nowhere/b.so"])
    with pytest.raises(ImportError) as caught:
        _ffi.library()
    tried = re.findall(r"^  (\S+): .*No such file", str(caught.value), re.MULTILINE)
    assert tried == ["/nowhere/a.so", "/nowhere/b.so"]


def test_another_abi_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    path = re.escape(_ffi.library()._name)
    monkeypatch.setattr(_ffi, "ABI_VERSION", 99)
    told = f"^{path} speaks ABI version 1, this package needs 99$"
    with pytest.raises(ImportError, match=told):
        _ffi.library()


def test_another_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import _ctypes

    monkeypatch.setenv("SESSION_AWARENESS_LIB", _ctypes.__file__)
    with pytest.raises(ImportError, match="is no session_awareness library"):
        _ffi.library()


def test_the_statuses_are_those_of_the_header() -> None:
    header = Path(__file__).parents[3] / "include" / "session_awareness.h"
    numbers = dict(re.findall(r"^#define AWARE_([A-Z_]+) (\d+)$", header.read_text(), re.MULTILINE))
    assert int(numbers.pop("ABI_VERSION")) == _ffi.ABI_VERSION
    statuses = {int(number): name.lower() for name, number in numbers.items()}
    assert statuses == {_ffi.OK: "ok", **_ffi._CODES}
