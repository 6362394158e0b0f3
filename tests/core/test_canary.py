"""The self-check passes on this installation and turns red on a broken one."""

import jax
import jax.numpy as jnp
import pytest

from tfjax._core._canary import (
    check_quadratic_forms,
    check_scan_time,
    quadratic_forms,
    self_check,
)


def test_this_installation_is_sound():
    checks = self_check()
    assert len(checks) == 5
    assert [check for check in checks if not check.passed] == []


def test_leaves_the_configuration_alone():
    before = dict(jax.config.values)
    check_quadratic_forms(8, x64=not jax.config.jax_enable_x64)
    assert dict(jax.config.values) == before
    expected = "float64" if jax.config.jax_enable_x64 else "float32"
    assert jnp.zeros(()).dtype == expected


@pytest.mark.parametrize("x64", [False, True])
def test_computes_in_the_precision_it_names(x64):
    seen = []

    def form(matrix, rows):
        seen.extend([matrix.dtype, rows.dtype])
        return quadratic_forms(matrix, rows)

    check = check_quadratic_forms(8, x64=x64, form=form)
    name = "float64" if x64 else "float32"
    assert check.passed
    assert seen == [name, name]
    assert name in check.name


@pytest.mark.parametrize("x64", [False, True])
def test_one_wrong_row_in_the_last_place_is_found(x64):
    def form(matrix, rows):
        result = quadratic_forms(matrix, rows)
        return result.at[-1].set(jnp.nextafter(result[-1], jnp.zeros_like(result[-1])))

    check = check_quadratic_forms(20_000, x64=x64, form=form)
    assert not check.passed
    assert check.found == 1.0


def test_rows_that_are_not_numbers_are_found():
    def form(matrix, rows):
        return quadratic_forms(matrix, rows) * jnp.asarray(jnp.nan, rows.dtype)

    check = check_quadratic_forms(16, x64=False, form=form)
    assert not check.passed
    assert check.found == 16.0


def test_missing_rows_are_an_error():
    with pytest.raises(ValueError, match="zip"):
        check_quadratic_forms(
            16, x64=False, form=lambda a, x: quadratic_forms(a, x)[1:]
        )


def test_linear_time_passes_at_once():
    calls = []

    def seconds(length):
        calls.append(length)
        return 1e-5 + 2e-8 * length

    check = check_scan_time(seconds)
    assert check.passed
    assert check.found < 16.0
    assert len(calls) == 6


def test_quadratic_time_fails():
    check = check_scan_time(lambda length: 5e-9 * length**2)
    assert not check.passed
    assert check.found == pytest.approx(256.0)


def test_noise_does_not_turn_a_sound_installation_red():
    runs = iter(range(24))

    def seconds(length):
        noise = 1.0 if next(runs) < 20 and length > 1_000 else 0.0
        return noise + 2e-8 * length

    assert check_scan_time(seconds).passed


@pytest.mark.parametrize("disturbed", [0, 1])
def test_noise_does_not_hide_a_broken_one(disturbed):
    # Two of the three runs that are always made of the short scan are disturbed.
    runs = iter(range(24))

    def seconds(length):
        noise = 1.0 if next(runs) // 2 in (disturbed, 2) and length == 1_000 else 0.0
        return noise + 5e-9 * length**2

    assert not check_scan_time(seconds).passed
