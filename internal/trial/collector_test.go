package trial_test

import (
	"fmt"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/internal/trial"
)

func TestACollectorReadsAllPartitionsAndGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	topic := servicetest.Topic(t, 3)
	client := trial.NewKafkaClient(servicetest.Kafka(t))
	defer client.Transport.(*kafka.Transport).CloseIdleConnections()
	collector := trial.NewCollector(servicetest.Kafka(t), topic)
	defer collector.Close()
	write := func(partition int, ids ...string) {
		var records []kafka.Record
		for _, id := range ids {
			records = append(records, kafka.Record{
				Key: kafka.NewBytes([]byte("key of " + id)), Value: kafka.NewBytes([]byte("value of " + id)),
				Headers: []kafka.Header{{Key: "ce_id", Value: []byte(id)}, {Key: "ce_outboxfence", Value: []byte("7")}},
			})
		}
		answer, err := client.Produce(t.Context(), &kafka.ProduceRequest{
			Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...),
		})
		require.NoError(t, err)
		require.NoError(t, answer.Error)
	}
	require.NoError(t, collector.CatchUp(t.Context()))
	require.Empty(t, collector.Records())

	write(0, "a", "b")
	write(2, "c")
	require.NoError(t, collector.CatchUp(t.Context()))
	write(0, "a")
	write(1, "d")
	require.NoError(t, collector.CatchUp(t.Context()))

	byPartition := map[int]string{}
	for _, r := range collector.Records() {
		byPartition[r.Partition] += fmt.Sprintf("%d:%s ", r.Offset, r.ID)
		require.Equal(t, "key of "+r.ID, r.Key)
		require.Equal(t, "value of "+r.ID, string(r.Value))
		require.Equal(t, "7", r.Fence)
	}
	require.Equal(t, map[int]string{0: "0:a 1:b 2:a ", 1: "0:d ", 2: "0:c "}, byPartition)
	events, repeats := collector.Events()
	require.Equal(t, 4, events)
	require.Equal(t, 1, repeats)
	require.True(t, collector.Has("d"))
	require.False(t, collector.Has("e"))
}

func TestACollectorOfATopicThatIsNotThereHasNothing(t *testing.T) {
	t.Parallel()
	collector := trial.NewCollector(servicetest.Kafka(t), servicetest.Name(t))
	defer collector.Close()
	require.NoError(t, collector.CatchUp(t.Context()))
	require.Empty(t, collector.Records())
}
