"""No message shows a password, whatever characters it has."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import semistream as ss
from semistream.master.sql_redact import redact

# None of these characters occurs in the surrounding URLs, so each one that is shown is a leak.
LETTERS = "XYZ0456789/#?@:&=%+ '\"\\;\n*ä€"
PASSWORDS = st.lists(
    st.sampled_from([*LETTERS, "password=X", "://", "Z@Y", "%58"]), min_size=1, max_size=12
).map("".join)
AROUND = [
    "postgresql://me:{}@host/db",
    "postgresql://me:{}@host:1/db?sslmode=require",
    "mysql://me:{}@host",
    "mariadb+pymysql://:{}@[::1]:12/db",
    "postgresql://corp@me:{}@host/db",
    "oracle://me:{}@host/db",
    "postgresql://host:1/db?user=me&password={}",
    "postgresql://me@host:12,other:23/db?password={}&sslmode=require",
    "postgresql://host/db?sslpassword={}",
    "postgresql:///db?PASSWORD={}",
    "mysql://host/db?passwd={}",
    "host=host user=me password={}",
    "sqlite:///shop.db?password={}",
]


def leaked(text: str, around: str) -> set[str]:
    """Characters of the password that are shown, by number: the URL itself has some of them."""
    shown = re.sub(r"\*\*\*", "", text)
    return {c for c in set(LETTERS) if shown.count(c) > around.count(c)}


@pytest.mark.parametrize("around", AROUND)
@given(password=PASSWORDS)
@example(password="12/password=X")
@example(password="X@Y@Z")
@example(password="X/Y#Z?5@6")
def test_no_password_is_shown(around: str, password: str) -> None:
    shown = redact(around.format(password))
    assert "***" in shown
    assert not leaked(shown, around), shown


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://me:hun/ter2@host:1/db", "postgresql://me:***@host:1/db"),
        ("postgresql://me:p@host/db?password=x", "postgresql://me:***@host/db?password=***"),
        ("postgresql://me@host:5432/db?password=a@b", "postgresql://me@host:***"),
        ("postgresql://me:hunter2", "postgresql://me:***"),
        ("postgresql://me@host:5432/db?sslmode=require", None),
        ("postgresql://a:5432,b:5433/db", None),
        ("postgresql://[::1]:5432/db", None),
        ("sqlite:///C:/shops/a@b/shop.db", None),
        ("sqlite:shop.db", None),
        ("shop.db", None),
    ],
)
def test_other_parts_of_the_url_are_shown(uri: str, shown: str | None) -> None:
    assert redact(uri) == (shown or uri)


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://me:hun/ter2@127.0.0.1:1/db",
        "postgresql://me:hun@ter2@127.0.0.1:1/db",
        "postgresql://me:hun#ter2@127.0.0.1:1/db",
        "postgresql://me:hun ter2@127.0.0.1:1/db",
        "postgresql://me:hunter2",
        "postgresql://me:hun%2",
        "mysql://me:hun/ter2@127.0.0.1:1/db",
        "mysql://me:hun#ter2@127.0.0.1:1/db",
        "mysql://me:hun?ter2@127.0.0.1:1/db",
        "oracle://me:hun/ter2@127.0.0.1/db",
        "me:hunter2@127.0.0.1/db",
    ],
)
def test_no_part_of_a_password_in_driver_messages(uri: str) -> None:
    """Drivers quote what they parse as a port or a host, which may be parts of a password."""
    with pytest.raises(ss.SemistreamError) as caught:
        ss.SqlMaster(uri, "t", key="k")
    error: Any = caught.value
    while error is not None:
        assert not re.search(r"\bhun|ter2", str(error)), error
        error = None if error.__suppress_context__ else error.__context__


def test_the_warehouse_shows_no_part_of_a_password_either() -> None:
    from semistream.sinks import open_sink

    sink = open_sink("postgresql", uri="postgresql://me:hun/ter2@h/db", table="t", patience=0)
    with pytest.raises(ss.SemistreamError, match="cannot be written") as caught:
        sink.check()
    assert not re.search(r"\bhun|ter2", str(caught.value))
