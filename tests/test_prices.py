"""What models cost, by the names that spans have for them."""

from pathlib import Path

import pytest

from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.settings.prices import PriceTable

TABLE = PriceTable.load()


@pytest.mark.parametrize(
    ("model", "like"),
    [
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("openai/gpt-4o", "gpt-4o"),
        ("openai:gpt-5-mini", "gpt-5-mini"),
        ("azure/gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("google-gla:gemini-2.5-pro", "gemini-2.5-pro"),
        ("gemini-2.0-flash-001", "gemini-2.0-flash"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5"),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet"),
        ("bedrock:eu.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5"),
        ("publishers/anthropic/models/claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("openrouter/anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("Claude-Opus-4-5-20251101[1m]", "claude-opus-4-5"),
        ("xai/grok-4-0709", "grok-4"),
        ("moonshotai/kimi-k2.6", "kimi-k2.6"),
        ("dashscope/qwen-max-latest", "qwen-max"),
        ("ft:gpt-4o-2024-08-06:mine::a1", None),
        ("deepseek/deepseek-r1-0528", "deepseek-r1"),
        ("mistral/mistral-large-2512", "mistral-large-2512"),
    ],
)
def test_a_name_with_provider_date_and_version_has_the_price_of_its_model(
    model: str, like: str | None
) -> None:
    assert TABLE.cost(model, 10_000, 1_000) == (like and TABLE.cost(like, 10_000, 1_000))
    assert like is None or TABLE.cost(like, 10_000, 1_000)


@pytest.mark.parametrize(
    "model",
    [
        "gpt-5-mini-fast",
        "gpt-5-ultra",
        "claude-opus-4-51",
        "claude",
        "gpt",
        "",
        "x" * 5_000,
        "a/b/",
    ],
)
def test_what_may_be_another_model_has_no_price(model: str) -> None:
    assert TABLE.cost(model, 1, 1) is None


@pytest.mark.parametrize(
    ("model", "tokens", "cost"),
    [
        ("gpt-4o-2024-05-13", 1_000_000, 5),
        ("gpt-4o-2024-11-20", 1_000_000, 2.5),
        ("gpt-4o-mini", 1_000_000, 0.15),
        ("gemini-2.5-pro", 200_000, 0.25),
        ("gemini-2.5-pro", 400_000, 1.0),
        ("gpt-4o", -5, 0),
    ],
)
def test_what_input_costs(model: str, tokens: int, cost: float) -> None:
    """The longest name wins, long requests have their own price, and no count is below 0."""
    assert TABLE.cost(model, tokens, 0) == pytest.approx(cost)


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '[models]\n"a" = { input = 1, output = -2 }',
            r"line 2: models.a.output = -2: .* or equal",
        ),
        ('[models]\n"a" = { input = "1", output = 2 }', r"line 2: models.a.input = '1': .*number"),
        ('[models]\n"a" = { input = nan, output = 2 }', "a.input = nan: .* finite number"),
        ('[models]\n"a" = { input = 1 }', "line 2: models.a.output: Field required"),
        ('[models]\n"a" = { input = 1, output = 1, in = 1 }', "models.a.in = 1: Extra"),
        ('[models]\n"a" = 3', "line 2: models.a = 3: .* dictionary"),
        ("models = 3", "models = 3: .* dictionary"),
        ("[models]\n= 3", "line 2"),
        (
            '[models]\n"a" = { input = 1, output = 1 }\n[long]\n"a" = { input = 1, output = 1 }',
            "line 4: long.a.above: Field required",
        ),
        ('[long]\n"b" = { above = 9, input = 1, output = 1 }', r"line 2: long.b: .*\[models\]"),
    ],
)
def test_a_broken_file_says_where_and_what(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(LoopGuardSettingsError, match=says) as error:
        PriceTable.load(str(path))
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", ["none.toml", "prices.txt"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(LoopGuardSettingsError, match=name):
        PriceTable.load(str(tmp_path / name))
