// Package sqs delivers events to Amazon SQS, to standard and FIFO queues. Import
// it as sqssink where the AWS client has the same name.
//
// What it promises: an event is reported as delivered only when SQS confirmed
// its message by name. A batch that was partly accepted is read entry by entry;
// an entry that the answer doesn't mention is unknown. Of one key there is never
// more than one unconfirmed message, so that what fails is not overtaken: after
// an event of a key failed, no later one of that key is sent in the same call.
// One event that is refused fails alone. Nothing is retried here or in the SDK,
// nothing is buffered between calls, and no goroutine outlives a call but those
// of idle connections, which Close ends.
//
// On a FIFO queue the message group is the event's key and the deduplication id
// the event's id: a repeat within five minutes is dropped by SQS itself. A
// standard queue keeps no order and may show a message more than once whatever
// its senders do.
package sqs
