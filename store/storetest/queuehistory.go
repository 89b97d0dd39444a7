package storetest

func queueHistoryRules() []rule { return nil }
