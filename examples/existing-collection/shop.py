"""The shop that was there before: it places orders and writes an event for each
change to a collection `outbox`, in the transaction of the change, in the shape
that most tutorials use. It knows nothing of the relay.

    shop.py URI DATABASE FIRST COUNT [published]

With `published` it also marks the events, as its old publisher did when it had
sent them.
"""

import sys
from datetime import datetime, timezone

from pymongo import MongoClient

uri, database, first, count = sys.argv[1:5]
published = sys.argv[5:] == ["published"]

client = MongoClient(uri)
db = client[database]


def event(kind, order, session):
    now = datetime.now(timezone.utc)
    db.outbox.insert_one(
        {
            "aggregate": "order",
            "aggregate_id": order["_id"],
            "event_type": kind,
            "payload": {"order_id": order["_id"], "total": order["total"], "state": order["state"]},
            "version": 1,
            "occurred_at": now,
            "published_at": now if published else None,
            "attempts": 0,
        },
        session=session,
    )


for number in range(int(first), int(first) + int(count)):
    order = {"_id": f"order-{number}", "total": number + 0.5, "state": "placed"}
    with client.start_session() as session, session.start_transaction():
        db.orders.insert_one(order, session=session)
        event("OrderPlaced", order, session)
    order["state"] = "paid"
    with client.start_session() as session, session.start_transaction():
        db.orders.update_one({"_id": order["_id"]}, {"$set": {"state": "paid"}}, session=session)
        event("OrderPaid", order, session)
