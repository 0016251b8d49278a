"""Files at URLs that fsspec knows: listed, read and written in pieces, with retries and errors of ours."""
