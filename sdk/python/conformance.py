"""The worker that go run ./test/conformance drives: docs/worker-protocol.md says what its handlers do."""
import contextlib
import json
import os

from belfry import Run, Worker

worker = Worker(os.environ["BELFRY_SERVER"], os.environ["BELFRY_TOKEN"], spool=os.environ["BELFRY_DATA"], capacity=int(os.environ["BELFRY_CAPACITY"]))


@contextlib.contextmanager
def witness(run: Run):
    def note(what):
        with open(run.params["witness"], "a") as file:
            file.write(f"{run.id} {run.attempt} {what}\n")
    note("begin")
    try:
        yield
    finally:
        note("end")


@worker.handler("echo")
def echo(run: Run, text: str, count: int = 1):
    with witness(run):
        for _ in range(count):
            print(text, file=run.out)
        print("oops", file=run.err)


@worker.handler("fail")
def fail(run: Run, text: str):
    with witness(run):
        raise RuntimeError(text)


@worker.handler("sleep")
async def sleep(run: Run, seconds: float):
    import asyncio
    with witness(run):
        print("sleeping", file=run.out)
        await asyncio.sleep(seconds)


@worker.handler("context")
def context(run: Run):
    with witness(run):
        print(json.dumps({"run": run.id, "attempt": run.attempt, "shard": run.shard, "shards": run.shards, "params": run.params}), file=run.out)


@worker.handler("sum")
def add(run: Run, count: int):
    with witness(run):
        return {"sum": count + run.steps["before"].result["n"] + run.item}


@worker.handler("secret")
def secret(run: Run, password: str):
    with witness(run):
        print(password, file=run.out)
        print("length", len(password), file=run.out)


if __name__ == "__main__":
    worker.run()
