"""A search that ends when one task has found it, counts in an object with tasks of its own, and failures that may happen.

Written for PyCOMPSs; only the imports differ. Run it with ``python search.py``.
"""

from windrow.compat.pycompss.api.api import TaskGroup, compss_barrier, compss_wait_on
from windrow.compat.pycompss.api.exceptions import COMPSsException
from windrow.compat.pycompss.api.parameter import COLLECTION_IN, IN
from windrow.compat.pycompss.api.reduction import reduction
from windrow.compat.pycompss.api.task import task


class Tally:
    def __init__(self):
        self.seen = []

    @task()
    def add(self, number):
        self.seen.append(number)

    @task(returns=int, target_direction=IN)
    def total(self):
        return sum(self.seen)


@task()
def look_for_a_divisor(number, start, stop):
    for one in range(start, stop):
        if number % one == 0:
            raise COMPSsException(f"{number} = {one} * {number // one}")


@task(returns=int)
def steps_to_one(number):
    steps = 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps


@reduction(chunk_size="4")
@task(returns=int, numbers=COLLECTION_IN)
def largest(numbers):
    return max(numbers)


def main():
    for number in (999_983, 1_000_001):
        try:
            with TaskGroup(f"divisors of {number}"):
                for start in range(2, 1000, 200):
                    look_for_a_divisor(number, start, min(start + 200, 1000))
            print(number, "is prime")
        except COMPSsException as found:
            print(found)
    tally = Tally()
    for number in range(1, 6):
        tally.add(number)
    before = tally.total()
    tally.add(100)
    print("total:", compss_wait_on(before), compss_wait_on(tally.total()))
    tally = compss_wait_on(tally)
    print("seen:", tally.seen)
    print("longest:", compss_wait_on(largest([steps_to_one(number) for number in range(1, 40)])))
    compss_barrier()


if __name__ == "__main__":
    main()
