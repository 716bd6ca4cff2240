"""How long each kind of server asks to be left alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gossipd.sources.asked_pause import asked_pause_s

NOW = datetime(2026, 11, 26, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "Thu, 26 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Thu, 26 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "0", "ratelimit": '"api";r=0;t=55'}, 0.0),
        ({"retry-after": "soon", "ratelimit": '"api";r=0;t=55'}, 55.0),
        ({"ratelimit": '"resolvers";r=0;t=212', "ratelimit-policy": '"fixed window";"resolvers";q=500;w=300'}, 212.0),
        ({"ratelimit": "limit=100, remaining=0, reset=9"}, 9.0),
        ({"ratelimit-reset": "12"}, 12.0),
        ({"x-ratelimit-reset": str(int(NOW.timestamp()) + 40)}, 40.0),
        ({"x-ms-retry-after-ms": "2500"}, 2.5),
        ({"ratelimit": '"burst";r=4'}, None),
        ({"ratelimit": '"api";r=499;t=290'}, None),
        ({"ratelimit": '"burst";r=4;t=2, "day";r=0;t=900'}, 900.0),
        ({"ratelimit": "limit=100, remaining=7, reset=9"}, None),
        ({"x-ratelimit-remaining": "59", "x-ratelimit-reset": "12"}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "12"}, 12.0),
        ({}, None),
        *[({"retry-after": text}, None) for text in ("-1", "\xb2", "9" * 5000, "", "Mon, 01 Jan 99999 00:00:00 GMT")],
    ],
)
def test_each_way_to_ask_for_a_pause_is_read(headers: dict[str, str], pause_s: float | None) -> None:
    assert asked_pause_s(lambda name: headers.get(name.lower()), NOW) == pause_s
