"""Builds the compiled core with CMake; everything else about the package is in pyproject.toml.

Environment: FASTSHARD_WERROR=1 makes warnings errors, FASTSHARD_SANITIZE=address,undefined builds with sanitizers.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


def missing_tools() -> list[str]:
    """What this machine lacks for a build, each with the way to get it."""
    missing = []
    if not any(shutil.which(compiler) for compiler in (os.environ.get("CXX", "c++"), "g++", "clang++")):
        missing.append(
            "a C++17 compiler "
            "(Debian/Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install)"
        )
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append(
            f"Python's headers, Python.h in {sysconfig.get_path('include')} "
            "(Debian/Ubuntu: apt-get install python3-dev; Fedora: dnf install python3-devel)"
        )
    return missing


class CMakeBuild(build_ext):
    """Runs CMake for the one extension module, with the cmake, ninja and pybind11 that pyproject.toml asks for."""

    def build_extension(self, ext: Extension) -> None:
        """Configures and builds, and leaves the module where setuptools looks for it."""
        missing = missing_tools()
        if missing:
            raise SystemExit("fastshard can't be built; this machine has no\n  - " + "\n  - ".join(missing))
        import pybind11

        module = Path(self.get_ext_fullpath(ext.name)).resolve()
        build = Path(self.build_temp).resolve()
        build.mkdir(parents=True, exist_ok=True)
        # Afresh: a cache left here names the ninja and pybind11 of an isolated environment that is gone.
        configure = [
            "-G",
            "Ninja",
            f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={module.parent}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            "-DPYBIND11_FINDPYTHON=ON",
            "-DFASTSHARD_PYTHON=ON",
            f"-DFASTSHARD_WERROR={'ON' if os.environ.get('FASTSHARD_WERROR') == '1' else 'OFF'}",
            f"-DFASTSHARD_SANITIZE={os.environ.get('FASTSHARD_SANITIZE', '')}",
            f"-DCMAKE_BUILD_TYPE={'Debug' if self.debug else 'Release'}",
        ]
        try:
            subprocess.run(["cmake", "--fresh", "-S", str(ROOT), "-B", str(build), *configure], check=True)
            subprocess.run(["cmake", "--build", str(build), "--target", "_core"], check=True)
        except FileNotFoundError:
            raise SystemExit(
                "fastshard can't be built: no cmake (pip install cmake ninja, or build with isolation)"
            ) from None
        except subprocess.CalledProcessError as error:
            raise SystemExit(
                f"fastshard's C++ core did not build ({' '.join(error.cmd[:3])} ... exit status {error.returncode}). "
                "The compiler's own words are above; it needs C++17: GCC 9, clang 10 or newer."
            ) from None


setup(ext_modules=[Extension("fastshard._core", sources=[])], cmdclass={"build_ext": CMakeBuild})
