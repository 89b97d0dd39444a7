package sqs_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/config"

	sqssink "github.com/gooutbox/outbox/sink/sqs"
)

// Region, endpoint and credentials are those that every AWS program finds.
func Example() {
	ctx := context.Background()
	found, err := config.LoadDefaultConfig(ctx, config.WithRegion("eu-west-1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	sink, err := sqssink.New(found, sqssink.Config{Queue: "shop-{{ .Aggregate }}.fifo", FIFO: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sink.Close(ctx) }()
	fmt.Println(sink.Capabilities().PrefixPerKey)
	// Output: true
}
