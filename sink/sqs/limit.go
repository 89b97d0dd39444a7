package sqs

import "time"

// Limits of Amazon SQS. Sources: "Amazon SQS message quotas" and "standard queue
// quotas" of the developer guide, and the API reference of SendMessageBatch. An
// emulator may have other ones, or none.
const (
	// maxEntries is the most messages of a batch.
	maxEntries = 10
	// maxBatchBytes bounds a batch, and each message in it: bodies and
	// attributes, with the attributes' names and types. It was 256 KiB until
	// August 2025.
	maxBatchBytes = 1 << 20
	// maxAttributes is the most attributes of a message.
	maxAttributes = 10
	// maxAttributeName bounds an attribute's name, in bytes.
	maxAttributeName = 256
	// maxIdentifier bounds group and deduplication ids, in bytes.
	maxIdentifier = 128
	// maxQueueName bounds a queue's name, with the suffix of FIFO queues.
	maxQueueName = 80
)

// fifoSuffix ends the names of FIFO queues, and of no others.
const fifoSuffix = ".fifo"

// limitAge is how long a queue's own limit of a message's size is believed.
// Before it rejects an event it is read again.
const limitAge = 5 * time.Minute

// isCharacter tells whether SQS takes the character in a body or a value: those
// of XML 1.0.
func isCharacter(r rune) bool {
	switch {
	case r == 0x9, r == 0xA, r == 0xD:
		return true
	case 0x20 <= r && r <= 0xD7FF, 0xE000 <= r && r <= 0xFFFD, 0x10000 <= r && r <= 0x10FFFF:
		return true
	}
	return false
}
