"""A configuration: round trips, and every mistake is named by section and key."""

import re

import pytest

from tfjax.train import RunConfig, read_config, ready_configs


@pytest.mark.parametrize("name", ready_configs())
def test_ready_configurations_round_trip(name):
    config = read_config(name)
    again = RunConfig.from_dict(config.to_dict())
    assert again == config
    assert config.training.steps > config.optimizer.warmup


def test_every_key_is_optional_and_integers_are_numbers():
    assert RunConfig.from_toml("") == RunConfig()
    config = RunConfig.from_toml("[optimizer]\nclip = 2\nbetas = [0, 0.5]")
    assert config.optimizer.clip == 2.0
    assert config.optimizer.betas == (0.0, 0.5)
    assert isinstance(config.optimizer.clip, float)


MISTAKES = {
    "[model]\nlayerz = 3": "`model.layerz` is no key: there are context, layers, heads",
    "[model]\nlayer = 3": "did you mean `model.layers`?",
    "[model]\nvocabulary = 65": "`model.vocabulary` must be left to the data, but was",
    "[model]\nlayers = 1.5": "`model.layers` must be an integer, but was 1.5.",
    "[model]\nlayers = 0": "`model.layers` must be an integer of at least 1, but was 0",
    "[model]\nheads = 3\nhead_dim = 7": "`model.head_dim` must be even for rotary posi",
    "[model]\nnorm = 'up'": "`model.norm` must be one of 'pre', 'post', 'peri', 'ngpt'",
    "model = 3": "`model` must be a section, but was 3.",
    "data = [1]": "`data` must be a section, but was [1].",
    "colour = 1": "`colour` is no key: there are data, model, depth, initializ",
    "seed = -1": "`seed` must lie in [0, 2**32), but was -1.",
    "seed = 'a'": "`seed` must be an integer, but was 'a'.",
    "seed = true": "`seed` must be an integer, but was True.",
    "[data]\nname = 'bible'": "`data.name` must be one of 'shakespeare', 'text', 'dig",
    "[data]\nname = 'text'": "`data.path` must be given for data.name = 'text', and",
    "[data]\nset = 'GunPoint'": "`data.set` must be given for data.name = 'ucr', and",
    "[data]\nvalidation = 1.0": "`data.validation` must lie between 0 and 1, but was 1",
    "[training]\nsteps = 'a'": "`training.steps` must be an integer, but was 'a'.",
    "[training]\nsteps = 0": "`training.steps` must be at least 1, but was 0.",
    "[training]\nbaselines = 1": "`training.baselines` must be true or false, but was",
    "[training]\nprecision = 'half'": "`training.precision` must be one of 'float32',",
    "[training]\nbatch = 16\naccumulate = 5": "`training.accumulate` must divide train",
    "[optimizer]\nlearning_rate = 0": "`optimizer.learning_rate` must be positive, but",
    "[optimizer]\nlearning_rate = '1'": "`optimizer.learning_rate` must be a number, b",
    "[optimizer]\nbetas = [0.9]": "`optimizer.betas` must be two numbers in [0, 1), b",
    "[optimizer]\nbetas = 0.9": "`optimizer.betas` must be a list, but was 0.9.",
    "[optimizer]\nwarmup = 5000": "`optimizer.warmup` must lie in [0, steps = 2000), b",
    "[optimizer]\nclip = -1": "`optimizer.clip` must be at least 0, but was -1.0.",
    "[initialization]\nkind = 'small'": "`initialization.kind` must be one of 'plain',",
    "[initialization]\nmargin = 0": "`initialization.margin` must be finite, positive",
    "[model]\nnorm = 'ngpt'\n[initialization]\nkind = 'typical'": (
        "`initialization.kind` must be 'plain' for model.norm = 'ngpt', but was 'typic"
    ),
    "[regularization]\nisometry = -1": "`regularization.isometry` must be at least 0",
    "[regularization]\nform = 'push'": "`regularization.form` must be one of 'pullback",
    "[regularization]\nprobes = 0": "`regularization.probes` must be at least 1, but w",
    "[regularization]\nlayers = -1": "`regularization.layers` must be at least 0, wh",
    "[regularization]\nmetrics = 1": "`regularization.metrics` must be true or false, ",
    "[depth]\nkind = 'deep'": "`depth.kind` must be one of 'discrete', 'continuous', b",
    "[depth]\nsolver = 'rk'": "`depth.solver` must be one of 'euler', 'split-euler', '",
    "depth.kind = 'continuous'\nmodel.norm = 'post'": "`model.norm` must be 'pre' or",
    "regularization.divergence = 1": "`regularization.divergence` must be 0 but for mo",
    "[model.bayesian]\nprior = 'flat'": "`model.bayesian.prior` must be one of 'unifor",
    "[optimizer": "The configuration is no TOML: Expected ']'",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_named(text):
    with pytest.raises(ValueError, match=re.escape(MISTAKES[text])):
        RunConfig.from_toml(text)


def test_files_that_are_missing_or_wrong_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file nothing.toml; there"):
        read_config("nothing.toml")
    file = tmp_path / "mine.toml"
    file.write_text("seed = -1")
    with pytest.raises(ValueError, match=r"mine.toml: `seed` must lie in"):
        read_config(file)
    file.write_bytes(b"seed = 1 # \xff")
    with pytest.raises(ValueError, match=r"mine.toml: must be UTF-8"):
        read_config(file)
