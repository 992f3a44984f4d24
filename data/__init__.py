"""The recorded runs that come with EnvSched, installed as envsched_data; README.md says how they were made."""
