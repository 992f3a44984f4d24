"""The recorded run that comes with EnvSched, installed as envsched_data; README.md says how it was made."""
