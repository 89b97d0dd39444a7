// Package services starts the real servers that tests, demo and benchmarks run
// against: mongod as a replica set of one or more nodes or as a standalone,
// a one-node Kafka broker, with TLS and SASL where asked, a RabbitMQ broker, and
// an emulator of AWS.
//
// What it promises:
//   - Programs are fetched once into one cache folder, whole or not at all,
//     also when several processes ask for them at once.
//   - A server that a call returned answers requests.
//   - A server listens on 127.0.0.1 only, on a free port that no other call of
//     this package uses.
//   - Servers end with the process that started them, also when it is killed
//     (on Linux), and their data goes with them: at once by Close, or when the
//     next process starts a server. Only those that [Up] starts stay, until [Down].
//   - Nothing that it didn't start is ever stopped.
package services
