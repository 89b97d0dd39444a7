// Package servicetest gives tests the real servers they need, and takes
// everything it made away again when the test ends.
//
// Shared servers are found by environment: MONGODB_URL (a replica set),
// MONGODB_STANDALONE_URL, KAFKA_BROKERS, AMQP_URL and AWS_ENDPOINT_URL, as
// `make services` prints them. Each test works in a database, topic or queue of
// its own on them, so tests run side by side. Tests that stop, kill or
// reconfigure a server start their own.
//
// When a server is missing a test is skipped, except under CI=true or
// OUTBOX_REQUIRE_SERVICES=1, where it fails.
package servicetest
