package mongo

// LargestEventBytes is the largest core.Event.Size that fits into one change
// event, whatever its fields.
const LargestEventBytes = 15 << 20
