"""Places an order and its event in one transaction, as outbox tutorials do.

Prints the event's id as the relay sends it.
"""

import sys
from datetime import datetime, timezone

from pymongo import MongoClient

uri, database = sys.argv[1:]
client = MongoClient(uri)
db = client[database]
order = {"_id": "order-42", "total": 99.5}
with client.start_session() as session, session.start_transaction():
    db.orders.insert_one(order, session=session)
    inserted = db.outbox.insert_one(
        {
            "aggregate": "order",
            "aggregate_id": "order-42",
            "event_type": "OrderPlaced",
            "payload": {
                "order_id": "order-42",
                "total": 99.5,
                "lines": [{"sku": "a-1", "count": 2}],
                "note": "Grüße",
            },
            "version": 1,
            "occurred_at": datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=timezone.utc),
            "published_at": None,
            "attempts": 0,
        },
        session=session,
    )
print(inserted.inserted_id, end="")
