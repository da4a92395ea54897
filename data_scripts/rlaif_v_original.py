"""RLAIF-V as OpenBMB published it; see `rlaif_v`."""

from functools import partial

from data_scripts import rlaif_v

build = partial(rlaif_v.build, form="original")
