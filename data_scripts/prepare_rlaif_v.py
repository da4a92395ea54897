"""The named set `rlaif-v`, ready to train on, as Parquet: see `prepare`."""

from data_scripts import prepare

if __name__ == "__main__":
    raise SystemExit(prepare.run("rlaif-v"))
