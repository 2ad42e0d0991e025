"""Random numbers in a step against NumPy's generators: ``random_numbers.py``, under the name of its claim.

Python looks for modules beside a script first, so every benchmark that needs the standard library's ``random`` finds this
file instead. Imported like that, it puts the other one in its place.
"""

import sys

if __name__ == "__main__":
    from random_numbers import main

    main()
else:
    import importlib.util
    import sysconfig

    _spec = importlib.util.spec_from_file_location("random", f"{sysconfig.get_path('stdlib')}/random.py")
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules[__name__] = _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
