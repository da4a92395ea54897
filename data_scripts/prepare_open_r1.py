"""The named set `multimodal-open-r1-8k-verified`, ready to train on, as Parquet: see `prepare`."""

from data_scripts import prepare

if __name__ == "__main__":
    raise SystemExit(prepare.run("multimodal-open-r1-8k-verified"))
