// Package mongo keeps in MongoDB what a dedupe.Guard remembers. Once, OnceBatch
// and IfNewer run in a transaction of it, so that an effect in the same
// deployment and its mark are durable together.
//
// Three collections hold one document for each event, aggregate and route's key
// of each consumer; a TTL index removes them. Their layout:
//
//	outbox_seen           {_id: "<consumer>/<event id>", state, expire_at, …}
//	outbox_seen_versions  {_id: {c: consumer, a: aggregate, i: aggregate id}, version, expire_at}
//	outbox_seen_fences    {_id: {c: consumer, r: route, k: aggregate id}, fence, expire_at}
//
// All times are the server's. Transactions need a replica set or a sharded
// cluster.
package mongo
