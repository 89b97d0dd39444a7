"""Prints subject and body of a mail as JSON, by Python's own parser."""

import json
import sys
from email import message_from_bytes, policy

with open(sys.argv[1], "rb") as f:
    message = message_from_bytes(f.read(), policy=policy.default)
body = message.get_content().replace("\r\n", "\n")
print(json.dumps({"Subject": str(message["Subject"]), "Body": body}))
