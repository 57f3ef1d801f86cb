"""What a network tells of a connection: an answer that lay there before its question is another's."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from qualgate.served.network import Broken, Exchange, Network, Question, broken


def reply(text: str) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text.encode())


def heard(*script: tuple[bytes, bytes]) -> list[tuple[str, bool]]:
    """What each question's answer is, and whether it lay there. script: what is written to each, and then unasked. The
    next question waits until that is there."""

    async def ask() -> list[tuple[str, bool]]:
        written, script_left, found = asyncio.Event(), list(script), list[tuple[str, bool]]()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.readline():
                while await reader.readline() not in (b"\r\n", b""):
                    pass
                asked_for, unasked = script_left.pop(0)
                writer.write(asked_for)
                await writer.drain()
                if unasked:
                    await asyncio.wait_for(written.wait(), 10)  # its asker has read the other
                    writer.write(unasked)
                    await writer.drain()
                    unasked_sent.set()

        unasked_sent = asyncio.Event()
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        network = Network(1, secure=False)
        for _, unasked in script:
            question = Question(method="GET", address=address, content=None, headers={}, exchange=Exchange())
            response = await network.send(question)
            found.append((b"".join([part async for part in response.parts()]).decode(), response.lay_there))
            await response.aclose()
            written.set()
            if unasked:
                await asyncio.wait_for(unasked_sent.wait(), 10)
                for _ in range(20):  # it arrives
                    await asyncio.sleep(0)
        await network.close()
        server.close()
        return found

    return asyncio.run(ask())


def test_an_answer_that_nobody_asked_for_is_told_and_its_connection_is_not_asked_again():
    found = heard((reply("one"), reply("late")), (reply("two"), b""), (reply("three"), b""))
    assert found[0] == ("one", False)
    assert found[1] == ("late", True)
    assert found[2][1] is False, "a new connection"


def test_answers_in_turn_lie_nowhere():
    assert heard(*((reply(text), b"") for text in "abc")) == [(text, False) for text in "abc"]


def test_a_server_that_is_not_there_is_told_by_host_and_port_and_nothing_of_ssl():
    async def ask() -> None:
        network = Network(1, secure=False)
        address = "http://127.0.0.1:9/"  # nobody listens there
        question = Question(method="GET", address=address, content=None, headers={}, exchange=Exchange())
        try:
            await network.send(question)
        finally:
            await network.close()

    with pytest.raises(Broken, match=r"^ConnectError: 127\.0\.0\.1, port 9: Connect call failed") as found:
        asyncio.run(ask())
    assert "ssl" not in str(found.value)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (aiohttp.ServerDisconnectedError(), "RemoteProtocolError"),
        (aiohttp.ClientPayloadError("not completed"), "RemoteProtocolError"),
        (aiohttp.SocketTimeoutError("slow"), "ReadTimeout"),
        (aiohttp.ConnectionTimeoutError("slow"), "ConnectTimeout"),
        (aiohttp.ClientOSError(104, "reset"), "ReadError"),
        (ConnectionResetError("reset"), "ReadError"),
    ],
)
def test_failures_have_names_that_say_how_a_connection_failed(error, name):
    found = broken(error)
    assert isinstance(found, Broken)
    assert (found.name, found.tls) == (name, None)
    assert found.words


def test_a_server_that_closes_behind_each_answer_and_does_not_say_so_is_asked_on_a_connection_for_each():
    """As llama.cpp does behind what it streams: every second request went into a connection that was closed."""
    heads = list[bytes]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head)
        await reader.readexactly(len(b"{}"))
        writer.write(reply("one"))
        writer.close()

    async def ask(network: Network, address: str) -> str:
        question = Question(method="POST", address=address, content=b"{}", headers={}, exchange=Exchange())
        try:
            response = await network.send(question)
        except Broken as error:
            return error.name
        said = b"".join([part async for part in response.parts()]).decode()
        await response.aclose()
        return said

    async def asked() -> list[str]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        network = Network(4, secure=False)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        found = [await ask(network, address) for _ in range(12)]
        await network.close()
        server.close()
        return found

    found = asyncio.run(asked())
    assert "ReadError" not in found, "what a closed connection took was sent to nobody"
    assert found.count("one") >= 11, "one may be lost before its connection is known to be closed"
    assert len(heads) == found.count("one")
    assert b"Connection: close" in heads[-1] or found.count("one") == 12
