"""What models cost, by the names that spans have for them."""

from pathlib import Path

import pytest

from otel_loopguard import LoopGuardSettingsError
from otel_loopguard.settings.prices import PriceTable
from tests.tables import rows

TABLE = PriceTable.load()


@pytest.mark.parametrize(("model", "like"), rows(__file__, "names"))
def test_a_name_with_provider_date_and_version_has_the_price_of_its_model(
    model: str, like: str
) -> None:
    assert TABLE.cost(model, 10_000, 1_000) == (TABLE.cost(like, 10_000, 1_000) if like else None)
    assert not like or TABLE.cost(like, 10_000, 1_000)


@pytest.mark.parametrize("model", ["", "x" * 5_000], ids=["empty", "long"])
def test_what_is_no_name_has_no_price(model: str) -> None:
    assert TABLE.cost(model, 1, 1) is None


@pytest.mark.parametrize(("model", "tokens", "cost"), rows(__file__, "input"))
def test_what_input_costs(model: str, tokens: str, cost: str) -> None:
    assert TABLE.cost(model, int(tokens), 0) == pytest.approx(float(cost))


def test_tokens_of_a_cache_have_their_own_price() -> None:
    price = TABLE.cost("claude-opus-4-5", 1_000, 0, cache_read=600, cache_write=300)
    assert price == pytest.approx((100 * 5 + 600 * 0.5 + 300 * 6.25) / 1e6)
    # Told beside the input, as some instrumentations do.
    beside = TABLE.cost("claude-opus-4-5", 100, 0, cache_read=600, cache_write=300)
    assert beside == pytest.approx(price)
    # A cache without a price of its own costs as input does.
    assert TABLE.cost("gpt-4", 1_000, 0, cache_read=500) == TABLE.cost("gpt-4", 1_000, 0)


def test_a_file_of_yours_adds_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(
        '[models]\n"mine" = { input = 1, output = 2 }\n'
        '"Gemini-2.5-pro" = { input = 3, output = 4, cache_read = 0 }\n'
    )
    table = PriceTable.load(str(path))
    assert table.cost("mine-latest", 1_000_000, 1_000_000) == 3
    # Yours holds for long requests too.
    assert table.cost("gemini-2.5-pro", 1_000_000, 0) == 3
    assert table.cost("gemini-2.5-pro", 1_000_000, 0, cache_read=1_000_000) == 0
    assert table.cost("gpt-4o", 100, 1) == TABLE.cost("gpt-4o", 100, 1)
    assert TABLE.cost("mine", 1, 1) is None


@pytest.mark.parametrize(("text", "says"), rows(__file__, "broken"))
def test_a_broken_file_says_where_and_what(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text.replace("\\n", "\n"))
    with pytest.raises(LoopGuardSettingsError, match=says) as error:
        PriceTable.load(str(path))
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", ["none.toml", "prices.txt"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(LoopGuardSettingsError, match=name):
        PriceTable.load(str(tmp_path / name))
