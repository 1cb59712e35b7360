"""An environment that gets a curriculum by the recipe of docs/how-to/curriculum.md."""

import random
import re
from pathlib import Path
from typing import Any

from env_plain import PlainEnv

PAGE = Path(__file__).parents[3] / "docs/how-to/curriculum.md"
ITEMS = 40


class SumsEnv(PlainEnv):
    """Forty questions, the first of which the model can nearly always answer, and the last nearly never."""

    name = "curriculum"

    async def setup(self) -> None:
        """Have a dataset."""
        await super().setup()
        self.train = [{"role": "user", "content": f"sum {number}"} for number in range(ITEMS)]

    async def collect_trajectories(self, item: dict[str, str]) -> tuple[dict[str, Any] | None, list[Any]]:
        """Score with 0 and 1, and write down what the recipe has to tell."""
        asked = {"role": item["role"], "content": item["content"]}
        group = await self.rollout(asked, self.config.group_size)
        number = int(item["key"])
        luck = [random.random() for _ in group["scores"]]  # noqa: TID251 - any luck will do
        group["scores"] = [float(ITEMS * one > number) for one in luck]
        self.journal.write("scored", key=item["key"], mean=sum(group["scores"]) / len(group["scores"]))
        return group, []


def recipe() -> type[SumsEnv]:
    """Make the class of the page."""
    (written,) = (
        snippet
        for snippet in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
        if "class MyCurriculumEnv(MyEnv)" in snippet
    )
    names: dict[str, Any] = {"MyEnv": SumsEnv}
    exec(compile(written.replace("MyCurriculumEnv.cli()", ""), str(PAGE), "exec"), names)
    made: type[SumsEnv] = names["MyCurriculumEnv"]
    return made


class CurriculumEnv(recipe()):  # type: ignore[misc]
    """The same, on record, and with an end."""

    async def get_next_item(self) -> dict[str, str] | None:
        """Draw none any more when told to stop."""
        item: dict[str, str] | None = None if self.stopping() else await super().get_next_item()
        if item is not None:
            self.journal.write("drawn", key=item["key"])
        return item


if __name__ == "__main__":
    CurriculumEnv.cli()
