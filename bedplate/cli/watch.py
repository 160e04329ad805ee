"""The commands for the figures and alerts of the hub: the fleet now, reports of use and cost, silences, tests."""

from typing import Annotated

import typer

from bedplate.cli.options import Json, WithLogin, printed
from bedplate.operate import watch

Alert = Annotated[str, typer.Argument(metavar="ALERT", help="Its name, as docs/monitoring.md has it.")]
Sum = Annotated[str, typer.Option("--by", metavar="WHAT", help="Add up by person, run or group.")]
Week = Annotated[bool, typer.Option("--week", help="Of the last seven days. Default: the last 24 hours.")]
_WEEK = 7


def top(operator: WithLogin, *, json: Json = False) -> int:
    """Show what machines and GPUs do.

    Machines that answer, GPUs by what they do, the price of an hour, firing alerts, and who has GPUs that do not work.
    """
    return printed(watch.top(operator), as_json=json)


def idle(operator: WithLogin, *, by: Sum = "person", week: Week = False, json: Json = False) -> int:
    """Show who had GPUs that did not work.

    GPU hours by what the GPUs did, and what those without work have cost. Held: they did nothing for their owner.
    Stuck: they only looked busy. Free: nobody had them.
    """
    return printed(watch.report(operator, by, _WEEK if week else 1, shows_cost=False), as_json=json)


def cost(operator: WithLogin, *, by: Sum = "person", week: Week = False, json: Json = False) -> int:
    """Show who has paid how much for GPUs.

    At list price. The price of a machine is divided among its GPUs. Machines without GPUs have a line of their own, and
    all lines add up to the bill. Machines of sites have no price.
    """
    return printed(watch.report(operator, by, _WEEK if week else 1, shows_cost=True), as_json=json)


def silence(  # noqa: PLR0913  each is an option of the command line
    alert: Annotated[str | None, typer.Argument(metavar="[ALERT]", help="Its name. Default: list silences.")] = None,
    *,
    time: Annotated[str, typer.Option("--for", metavar="TIME", help="30m, 4h or 2d.")] = "4h",
    why: Annotated[str | None, typer.Option("--why", metavar="TEXT", help="The reason, for others.")] = None,
    machine: Annotated[str | None, typer.Option("--machine", metavar="NAME", help="Of this machine only.")] = None,
    place: Annotated[str | None, typer.Option("--place", metavar="NAME", help="Of this region or site only.")] = None,
    end: Annotated[bool, typer.Option("--end", help="End the silences of this alert.")] = False,
    operator: WithLogin,
    json: Json = False,
) -> int:
    """Keep an alert back for some time.

    Without a name it lists what is silent.
    """
    if alert is None:
        return printed(watch.silences(operator), as_json=json)
    if end:
        return printed(watch.end_silences(operator, alert), as_json=json)
    return printed(watch.silence(operator, alert, {"instance": machine, "place": place}, time, why), as_json=json)


def send_test(
    alert: Alert,
    *,
    person: Annotated[str | None, typer.Option("--person", metavar="NAME", help="Who gets it.")] = None,
    operator: WithLogin,
) -> int:
    """Send an alert without its fault.

    Its message takes the way of a real one. The exit status is 6 if the hub has not taken it after 90 seconds.
    """
    return printed(watch.send_test(operator, alert, person))
