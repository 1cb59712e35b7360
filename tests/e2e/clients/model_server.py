"""A small OpenAI-compatible model server: random words after a short think, over real HTTP.

Runs in the clients' environment: ``python model_server.py`` prints its base URL once it listens. The model's name is
how long it thinks, in milliseconds: ``think-20``.
"""

import asyncio
import itertools
import random

from aiohttp import web

WORDS = ("alpha", "bravo", "carol", "delta", "early", "frank", "grape", "hotel")
LONGEST_ANSWER_WORDS = 40

serial = itertools.count()
randomness = random.Random(20)


async def think(model: str) -> None:
    """Wait as long as the model's name says, give or take a half."""
    await asyncio.sleep(int(model.removeprefix("think-")) / 1000 * randomness.uniform(0.5, 1.5))


def answer() -> list[str]:
    """Choose the words of one completion."""
    return randomness.choices(WORDS, k=randomness.randint(1, LONGEST_ANSWER_WORDS))


def reply(kind: str, model: str, choices: list[dict]) -> web.Response:
    """Wrap choices as the OpenAI API does."""
    body = {"id": f"{kind}-{next(serial)}", "object": kind, "created": 0, "model": model, "choices": choices}
    return web.json_response(body | {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})


async def chat_completions(request: web.Request) -> web.Response:
    """Answer ``POST /v1/chat/completions``."""
    asked = await request.json()
    await think(asked["model"])
    choices = [
        {"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": " ".join(answer())}}
        for i in range(asked.get("n") or 1)
    ]
    return reply("chat.completion", asked["model"], choices)


async def completions(request: web.Request) -> web.Response:
    """Answer ``POST /v1/completions``, with a logprob for each word."""
    asked = await request.json()
    await think(asked["model"])
    choices = []
    for i in range(asked.get("n") or 1):
        words = answer()
        logprobs = {"tokens": words, "token_logprobs": [-randomness.expovariate(1.0) for _ in words]}
        choices.append({"index": i, "finish_reason": "stop", "text": " ".join(words), "logprobs": logprobs})
    return reply("text_completion", asked["model"], choices)


async def main() -> None:
    """Serve on a free port until killed."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat_completions)
    app.router.add_post("/v1/completions", completions)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
