"""What a page of `gaccd report` tells: the JSON in its element `data`."""

import json
import pathlib
import re


def data_of(page):
    return json.loads(re.search('id="data">(.*?)</script>', pathlib.Path(page).read_text(), re.DOTALL)[1])


def runs_of(page):
    return data_of(page)["runs"]
