"""How far training is: a bar where there is a terminal, lines elsewhere."""

import importlib.util
import sys
import time


class Meter:
    """Shows step, loss, throughput and the time that is left.

    A context manager; `silent` shows nothing, and only counts.
    """

    def __init__(
        self, steps: int, done: int, *, per_step: int, unit: str, silent: bool
    ):
        self._steps, self._done, self._first = steps, done, done
        self._per_step, self._unit = per_step, unit
        self._begin = self._shown = time.perf_counter()
        self._away, self._compiled = 0.0, False
        self._bar, self._silent = None, silent
        bars = importlib.util.find_spec("tqdm") is not None
        if not silent and bars and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=steps, initial=done, unit="step", smoothing=0.05)

    def __enter__(self) -> "Meter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def rate(self) -> float:
        """What goes through in a second, evaluation and checkpoints left out."""
        spent = time.perf_counter() - self._begin - self._away
        return (self._done - self._first) * self._per_step / max(spent, 1e-9)

    def away(self, seconds: float) -> None:
        """Time that was not spent on steps."""
        self._away += seconds

    def step(self, loss: float) -> None:
        """One step further."""
        self._done += 1
        if not self._compiled:  # the first step did: rates count from here
            self._compiled, self._first = True, self._done
            self._begin = time.perf_counter()
        if self._silent:
            return
        rate = f"{self.rate():.0f} {self._unit}/s" if self.rate() else "compiled"
        if self._bar is not None:
            self._bar.set_postfix_str(f"loss {loss:.4f}, {rate}", refresh=False)
            self._bar.update()
        elif time.perf_counter() - self._shown > 10 or self._done == self._steps:
            self._shown = time.perf_counter()
            left = (self._steps - self._done) * self._per_step / max(self.rate(), 1e-9)
            left = f", {left:.0f} s left" if self._done > self._first else ""
            self.say(f"step {self._done}/{self._steps}, loss {loss:.4f}, {rate}{left}")

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._silent:
            return
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)
