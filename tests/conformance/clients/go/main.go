// Does what the lines of JSON on its input say, with RocketMQ's own Go client; prints JSON lines.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type asked struct {
	Id, Do, Name, Group, Topic, Expression, How, Tags string
	Topics, Keys                                      []string
	Size, Level, Max, Count                                  int
	Orderly, Broadcast                                bool
	Fails                                             map[string]int32
}

var names primitive.NamesrvAddr
var credentials primitive.Credentials
var mouth sync.Mutex
var producers = map[string]rocketmq.Producer{}
var consumers = map[string]rocketmq.PushConsumer{}

func say(said map[string]any) {
	mouth.Lock()
	defer mouth.Unlock()
	line, _ := json.Marshal(said)
	fmt.Println(string(line))
}

func main() {
	rlog.SetLogLevel("fatal")
	names = strings.Split(os.Args[1], ";")
	credentials = primitive.Credentials{
		AccessKey: os.Getenv("ACCESS_KEY"), SecretKey: os.Getenv("SECRET_KEY")}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	for lines.Scan() {
		var what asked
		err := json.Unmarshal(lines.Bytes(), &what)
		if err == nil {
			err = run(what)
		}
		if err != nil {
			say(map[string]any{"error": err.Error(), "id": what.Id})
		} else {
			say(map[string]any{"done": what.Id})
		}
	}
	for _, each := range consumers {
		each.Shutdown()
	}
	for _, each := range producers {
		each.Shutdown()
	}
}

func run(what asked) error {
	switch what.Do {
	case "send":
		return send(what)
	case "push":
		return push(what)
	case "pull":
		return pull(what)
	case "stop":
		return consumers[what.Name].Shutdown()
	}
	return fmt.Errorf("unknown: %s", what.Do)
}

func message(what asked, key string) *primitive.Message {
	body := make([]byte, max(len(key), what.Size))
	copy(body, key)
	made := primitive.NewMessage(what.Topic, body).WithKeys([]string{key})
	if what.Tags != "" {
		made.WithTag(what.Tags)
	}
	if what.Level > 0 {
		made.WithDelayTimeLevel(what.Level)
	}
	return made
}

func send(what asked) error {
	made, isThere := producers[what.Group]
	if !isThere {
		var err error
		made, err = rocketmq.NewProducer(
			producer.WithNameServer(names),
			producer.WithCredentials(credentials),
			producer.WithGroupName(what.Group),
			producer.WithInstanceName(what.Group),
			producer.WithSendMsgTimeout(20*time.Second),
			producer.WithRetry(2))
		if err != nil {
			return err
		}
		if err = made.Start(); err != nil {
			return err
		}
		producers[what.Group] = made
	}
	if what.How == "batch" {
		var batch []*primitive.Message
		for _, key := range what.Keys {
			batch = append(batch, message(what, key))
		}
		result, err := made.SendSync(context.Background(), batch...)
		return sent(strings.Join(what.Keys, " "), result, err)
	}
	for _, key := range what.Keys {
		var err error
		switch what.How {
		case "oneway":
			err = made.SendOneWay(context.Background(), message(what, key))
		case "async":
			answered := make(chan error)
			err = made.SendAsync(context.Background(),
				func(_ context.Context, result *primitive.SendResult, failed error) {
					answered <- sent(key, result, failed)
				}, message(what, key))
			if err == nil {
				err = <-answered
			}
		default:
			var result *primitive.SendResult
			result, err = made.SendSync(context.Background(), message(what, key))
			err = sent(key, result, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sent(key string, result *primitive.SendResult, err error) error {
	if err != nil {
		return err
	}
	status := map[primitive.SendStatus]string{primitive.SendOK: "SEND_OK"}[result.Status]
	say(map[string]any{"sent": key, "status": status, "queue": result.MessageQueue.QueueId,
		"offset": result.QueueOffset, "id": result.MsgID, "at": result.OffsetMsgID})
	return nil
}

func push(what asked) error {
	options := []consumer.Option{
		consumer.WithNameServer(names),
		consumer.WithCredentials(credentials),
		consumer.WithGroupName(what.Group),
		consumer.WithInstance(what.Name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(what.Orderly),
		consumer.WithSuspendCurrentQueueTimeMillis(100 * time.Millisecond),
	}
	if what.Broadcast {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if what.Max > 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(int32(what.Max)))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	listen := func(c context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		isFine := true
		for _, each := range messages {
			got(what.Name, each)
			isFine = isFine && each.ReconsumeTimes >= what.Fails[each.GetKeys()]
		}
		if what.Orderly {
			if isFine {
				return consumer.ConsumeSuccess, nil
			}
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		if context, isThere := primitive.GetConcurrentlyCtx(c); isThere {
			context.DelayLevelWhenNextConsume = what.Level
		}
		if isFine {
			return consumer.ConsumeSuccess, nil
		}
		return consumer.ConsumeRetryLater, nil
	}
	for _, topic := range what.Topics {
		selector := consumer.MessageSelector{Type: consumer.TAG, Expression: what.Expression}
		if err = made.Subscribe(topic, selector, listen); err != nil {
			return err
		}
	}
	consumers[what.Name] = made
	return made.Start()
}

func got(by string, each *primitive.MessageExt) {
	say(map[string]any{"got": each.GetKeys(), "by": by, "topic": each.Topic,
		"queue": each.Queue.QueueId, "offset": each.QueueOffset, "times": each.ReconsumeTimes,
		"tags": each.GetTags(), "size": len(each.Body)})
}

func pull(what asked) error {
	made, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer(names),
		consumer.WithGroupName(what.Group),
		consumer.WithInstance(what.Name))
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: what.Expression}
	if err = made.Subscribe(what.Topic, selector); err != nil {
		return err
	}
	if err = made.Start(); err != nil {
		return err
	}
	defer made.Shutdown()
	// Without the last pull, which the broker would suspend.
	queue := &primitive.MessageQueue{Topic: what.Topic, BrokerName: "broker-a"}
	for offset := int64(0); offset < int64(what.Count); {
		result, err := made.PullFrom(context.Background(), queue, offset, 32)
		if err != nil {
			return err
		}
		if result.Status != primitive.PullFound {
			return fmt.Errorf("status %d at %d", result.Status, offset)
		}
		for _, each := range result.GetMessageExts() {
			got(what.Name, each)
		}
		offset = result.NextBeginOffset
	}
	return nil
}
