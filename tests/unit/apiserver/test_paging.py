"""Pages of a list: bounded, and without a trace of keys that the caller may not see."""

from __future__ import annotations

import pytest

from controlplane.apiserver.queries import paging
from controlplane.model.errors import Invalid

OWN = [f"own-{number:05}" for number in range(5)]
FOREIGN = [f"other-{number:05}" for number in range(paging.MAX_SEARCHED + 10)]


def is_own(key: str) -> bool:
    return key.startswith("own")


async def page(keys: list[str], limit: int) -> tuple[list[str], str]:
    return await paging.page(keys, lambda key: key, len, limit, visible=is_own)


async def test_a_page_ends_at_its_limit_and_its_token_names_its_last_key() -> None:
    items, token = await page(OWN, 2)
    assert (items, paging.key_in(token)) == (OWN[:2], OWN[1])
    assert await page(OWN[:2], 2) == (OWN[:2], "")


async def test_keys_that_are_not_visible_make_no_token() -> None:
    assert await page([*OWN[:2], *FOREIGN], 2) == (OWN[:2], "")
    assert await page(FOREIGN, 2) == ([], "")


async def test_keys_that_are_not_visible_are_not_searched() -> None:
    assert await page([*FOREIGN, *OWN], 10) == (OWN, "")
    items, token = await page([OWN[0], *FOREIGN, *OWN[1:]], 2)
    assert (items, paging.key_in(token)) == (OWN[:2], OWN[1])


async def test_a_search_for_few_among_many_visible_keys_goes_on_in_the_next_page() -> None:
    many = [f"own-{number:05}" for number in range(paging.MAX_SEARCHED + 10)]
    items, token = await paging.page(many, lambda key: None, len, 10, visible=is_own)
    assert (items, paging.key_in(token)) == ([], many[paging.MAX_SEARCHED - 1])


@pytest.mark.parametrize("token", ["x", "djI6eA==", "%%%", "é"])
def test_a_token_that_was_not_given_out_is_refused(token: str) -> None:
    with pytest.raises(Invalid):
        paging.key_in(token)
