"""An environment whose service does not answer."""

import asyncio
from dataclasses import replace

import pytest

from lachesis import AsyncEnvironment, Settings, Unreachable
from tests.clients.proxy import CuttingProxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_credits_are_asked_for_in_time_though_a_permit_waits_without_a_service(
    run: Settings, proxy: CuttingProxy
) -> None:
    """The permit asks for as long as it may, and requests of one environment come one after the other."""
    impatient = replace(run, url=proxy.url, retry_budget_s=0.1)
    async with asyncio.timeout(60), AsyncEnvironment("gsm8k", impatient, drain_s=0.2) as environment:
        port, proxy.upstream = proxy.upstream, None
        await proxy.drop_all()
        waiting = asyncio.create_task(environment.permit().__aenter__())
        await wait_until(lambda: environment.trouble is not None)
        with pytest.raises(Unreachable):
            await environment.credits()
        assert not waiting.done()
        proxy.upstream = port
        await waiting
        assert (await environment.credits()).credits_groups > 0


async def test_leaving_without_a_service_takes_no_longer_than_it_may(run: Settings, proxy: CuttingProxy) -> None:
    port = proxy.upstream
    patient = replace(run, retry_budget_s=3600)
    async with asyncio.timeout(60), AsyncEnvironment("gsm8k", patient, drain_s=0.2):
        proxy.upstream = None
        await proxy.drop_all()
    proxy.upstream = port
