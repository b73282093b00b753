import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.RequestCode;
import org.apache.rocketmq.common.protocol.header.GetMaxOffsetRequestHeader;
import org.apache.rocketmq.common.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.common.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.common.protocol.header.SendMessageRequestHeaderV2;
import org.apache.rocketmq.common.sysflag.PullSysFlag;
import org.apache.rocketmq.remoting.InvokeCallback;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Loads a broker through RocketMQ's own client as the lines of JSON on its input say. */
public class Load {
  private static final int DELAYING_THREADS = 32;
  private static final int PATIENCE_S = 100;
  private static final int PARKED_MS = 30_000;
  /** From the send of a timer whose lateness is measured to the instant that it asks for. */
  private static final int AHEAD_MS = 3_000;
  private static final byte[] BODY = new byte[1024];
  private static String names;
  private static DefaultMQProducer producer;
  private static NettyRemotingClient parking;

  public static void main(String[] arguments) throws Exception {
    names = arguments[0];
    Arrays.fill(BODY, (byte) 'x');
    producer = new DefaultMQProducer("load");
    producer.setNamesrvAddr(names);
    producer.setSendMsgTimeout(20_000);
    producer.setRetryTimesWhenSendFailed(0);
    producer.start();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JSONObject asked = JSONObject.parseObject(line);
      try {
        run(asked);
        say(new JSONObject().fluentPut("done", asked.getString("id")));
      } catch (Throwable error) {
        say(new JSONObject().fluentPut("error", error.toString()).fluentPut("id", asked.get("id")));
      }
    }
    producer.shutdown();
    System.exit(0);
  }

  private static void run(JSONObject asked) throws Exception {
    String topic = asked.getString("topic");
    switch (asked.getString("do")) {
      case "send": send(asked, topic); break;
      case "fill": fill(topic, asked.getIntValue("count")); break;
      case "drain": drain(topic, asked.getIntValue("count")); break;
      case "delay": delay(topic, asked.getIntValue("count"), asked.getIntValue("level")); break;
      case "deliver": deliver(topic, asked.getIntValue("count")); break;
      case "park": park(topic, asked.getIntValue("count")); break;
      case "unpark": parking.shutdown(); break;
      case "latency": latency(topic, asked.getIntValue("count")); break;
      case "lateness": lateness(asked, topic); break;
      case "request": request(topic, asked.getIntValue("count")); break;
      case "pair": pair(topic, asked.getIntValue("count")); break;
      default: throw new IllegalArgumentException(asked.toString());
    }
  }

  private static synchronized void say(JSONObject said) {
    System.out.println(said.toJSONString());
    System.out.flush();
  }

  private static void figures(long messages, long nanos) {
    say(new JSONObject().fluentPut("messages", messages).fluentPut("seconds", nanos / 1e9));
  }

  private static List<Message> batch(String topic, int size) {
    List<Message> batch = new ArrayList<>();
    for (int each = 0; each < size; each++) {
      batch.add(new Message(topic, BODY));
    }
    return batch;
  }

  private static void check(SendResult result) {
    if (result.getSendStatus() != SendStatus.SEND_OK) {
      throw new IllegalStateException("a send ended with " + result.getSendStatus());
    }
  }

  /** The queues of a topic that the first message makes; RocketMQ publishes them a moment later. */
  private static List<MessageQueue> made(String topic) throws Exception {
    check(producer.send(new Message(topic, BODY)));
    long until = System.nanoTime() + PATIENCE_S * 1_000_000_000L;
    while (true) {
      try {
        return producer.fetchPublishMessageQueues(topic);
      } catch (MQClientException error) {
        if (System.nanoTime() > until) {
          throw error;
        }
        Thread.sleep(50);
      }
    }
  }

  /** Threads send one message, or one batch, after the other. */
  private static void send(JSONObject asked, String topic) throws Exception {
    int size = asked.getIntValue("batch");
    AtomicLong sent = new AtomicLong();
    long began = System.nanoTime();
    long until = began + (long) (asked.getDoubleValue("seconds") * 1e9);
    together(asked.getIntValue("threads"), () -> {
      while (System.nanoTime() < until) {
        if (size > 1) {
          check(producer.send(batch(topic, size)));
        } else {
          check(producer.send(
              message(topic, asked.getIntValue("level"), asked.getLongValue("after_ms"))));
        }
        sent.addAndGet(size);
      }
    });
    figures(sent.get(), System.nanoTime() - began);
  }

  private static Message message(String topic, int level, long afterMs) {
    Message message = new Message(topic, BODY);
    if (level > 0) {
      message.setDelayTimeLevel(level);
    }
    if (afterMs > 0) {
      // The client of 4.x has no setter for it.
      message.putUserProperty("TIMER_DELAY_MS", String.valueOf(afterMs));
    }
    return message;
  }

  private interface Work {
    void run() throws Exception;
  }

  /** The same work in several threads, until all of them are done; the first failure is thrown. */
  private static void together(int count, Work work) throws Exception {
    Set<String> failures = ConcurrentHashMap.newKeySet();
    Thread[] threads = new Thread[count];
    for (int each = 0; each < count; each++) {
      threads[each] = new Thread(() -> {
        try {
          work.run();
        } catch (Exception error) {
          failures.add(error.toString());
        }
      });
      threads[each].start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    if (!failures.isEmpty()) {
      throw new IllegalStateException(failures.iterator().next());
    }
  }

  private static void fill(String topic, int count) throws Exception {
    made(topic);
    for (int left = count - 1; left > 0; left -= 32) {
      check(producer.send(batch(topic, Math.min(32, left))));
    }
  }

  private static DefaultMQPushConsumer consumer(
      String group, String topic, ConsumeFromWhere from, MessageListenerConcurrently listener)
      throws Exception {
    DefaultMQPushConsumer made = new DefaultMQPushConsumer(group);
    made.setNamesrvAddr(names);
    made.setInstanceName(group);
    made.setConsumeFromWhere(from);
    made.subscribe(topic, "*");
    made.registerMessageListener(listener);
    made.start();
    return made;
  }

  /** Messages that wait at a level: nearly all of them are sent before the first one is due. */
  private static void delay(String topic, int count, int level) throws Exception {
    made(topic);
    AtomicLong left = new AtomicLong(count - 1);
    together(DELAYING_THREADS, () -> {
      while (left.getAndDecrement() > 0) {
        check(producer.send(message(topic, level, 0)));
      }
    });
  }

  /** Until all messages are in the queues of their topic, none of them twice. */
  private static void deliver(String topic, int count) throws Exception {
    List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
    long began = System.nanoTime();
    long until = began + PATIENCE_S * 1_000_000_000L;
    long before = stored(queues);
    while (stored(queues) < count) {
      if (System.nanoTime() > until) {
        throw new IllegalStateException("only " + stored(queues) + " of " + count + " came");
      }
      // Each look is a request for each queue.
      Thread.sleep(50);
    }
    long nanos = System.nanoTime() - began;
    Thread.sleep(200);
    if (stored(queues) != count) {
      throw new IllegalStateException(stored(queues) + " messages came, not " + count);
    }
    figures(Math.max(1, count - before), nanos);
  }

  private static long stored(List<MessageQueue> queues) throws Exception {
    long sum = 0;
    for (MessageQueue queue : queues) {
      sum += producer.maxOffset(queue);
    }
    return sum;
  }

  /** From the first of the waiting messages to the last one; each must come. */
  private static void drain(String topic, int count) throws Exception {
    Set<String> got = ConcurrentHashMap.newKeySet();
    AtomicLong first = new AtomicLong();
    AtomicLong last = new AtomicLong();
    CountDownLatch all = new CountDownLatch(1);
    DefaultMQPushConsumer consumer =
        consumer("drains-" + topic, topic, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, (found, context) -> {
          first.compareAndSet(0, System.nanoTime());
          found.forEach(each -> got.add(each.getQueueId() + "/" + each.getQueueOffset()));
          if (got.size() >= count) {
            last.compareAndSet(0, System.nanoTime());
            all.countDown();
          }
          return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    try {
      if (!all.await(PATIENCE_S, TimeUnit.SECONDS)) {
        throw new IllegalStateException("only " + got.size() + " of " + count + " messages came");
      }
    } finally {
      consumer.shutdown();
    }
    if (got.size() != count) {
      throw new IllegalStateException(got.size() + " messages came, not " + count);
    }
    figures(count, last.get() - first.get());
  }

  /** Pulls at the ends of a topic's queues, which the broker suspends, on a connection of its own. */
  private static void park(String topic, int count) throws Exception {
    List<MessageQueue> queues = made(topic);
    String broker = queues.get(0).getBrokerName();
    String address =
        producer.getDefaultMQProducerImpl().getmQClientFactory().findBrokerAddressInPublish(broker);
    parking = new NettyRemotingClient(new NettyClientConfig());
    parking.start();
    for (int each = 0; each < count; each++) {
      MessageQueue queue = queues.get(each % queues.size());
      PullMessageRequestHeader header = new PullMessageRequestHeader();
      header.setConsumerGroup("parked");
      header.setTopic(topic);
      header.setQueueId(queue.getQueueId());
      header.setQueueOffset(producer.maxOffset(queue));
      header.setMaxMsgNums(32);
      header.setSysFlag(PullSysFlag.buildSysFlag(false, true, true, false));
      header.setCommitOffset(0L);
      header.setSuspendTimeoutMillis((long) PARKED_MS);
      header.setSubscription("*");
      header.setSubVersion(0L);
      header.setExpressionType("TAG");
      RemotingCommand pull = RemotingCommand.createRequestCommand(RequestCode.PULL_MESSAGE, header);
      parking.invokeAsync(address, pull, PARKED_MS * 2, answered -> { });
    }
    // The broker has read all of them when it has answered the next one.
    parking.invokeSync(
        address, RemotingCommand.createRequestCommand(RequestCode.GET_BROKER_CONFIG, null), 60_000);
  }

  /** From the call of a send to the call of the listener, one message after the other. */
  private static void latency(String topic, int count) throws Exception {
    made(topic);
    AtomicLong received = new AtomicLong();
    Object change = new Object();
    DefaultMQPushConsumer consumer =
        consumer("waits-" + topic, topic, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, (found, context) -> {
          long now = System.nanoTime();
          synchronized (change) {
            received.set(now);
            change.notifyAll();
          }
          return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    List<Long> nanos = new ArrayList<>();
    try {
      // The first one is there, so the consumer has its queues.
      await(received, change, 0);
      for (int each = 0; each < count; each++) {
        Thread.sleep(5);
        long began = System.nanoTime();
        check(producer.send(new Message(topic, BODY)));
        await(received, change, began);
        nanos.add(received.get() - began);
      }
    } finally {
      consumer.shutdown();
    }
    times(nanos);
  }

  /** Timers at a steady rate: from the instant that each asks for to the call of the listener. */
  private static void lateness(JSONObject asked, String topic) throws Exception {
    int count = asked.getIntValue("count");
    long stepMs = asked.getLongValue("step_ms");
    made(topic);
    List<Long> nanos = Collections.synchronizedList(new ArrayList<>());
    Set<String> got = ConcurrentHashMap.newKeySet();
    CountDownLatch ready = new CountDownLatch(1);
    CountDownLatch all = new CountDownLatch(1);
    DefaultMQPushConsumer consumer =
        consumer("times-" + topic, topic, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, (found, context) -> {
          Instant now = Instant.now();
          for (Message each : found) {
            String due = each.getProperty("TIMER_DELIVER_MS");
            if (due == null) {
              // The one that made the topic: the consumer has its queues.
              ready.countDown();
              continue;
            }
            nanos.add(Duration.between(Instant.ofEpochMilli(Long.parseLong(due)), now).toNanos());
            got.add(each.getKeys());
            if (got.size() >= count) {
              all.countDown();
            }
          }
          return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    try {
      boolean isReady = ready.await(PATIENCE_S, TimeUnit.SECONDS);
      long began = System.nanoTime();
      for (int each = 0; isReady && each < count; each++) {
        long next = began + each * 1_000_000_000L / asked.getIntValue("rate");
        TimeUnit.NANOSECONDS.sleep(next - System.nanoTime());
        Message message = message(topic, 0, 0);
        message.setKeys(String.valueOf(each));
        long ahead = System.currentTimeMillis() + AHEAD_MS + stepMs - 1;
        message.putUserProperty("TIMER_DELIVER_MS", String.valueOf(ahead - ahead % stepMs));
        check(producer.send(message));
      }
      if (!all.await(PATIENCE_S, TimeUnit.SECONDS)) {
        throw new IllegalStateException("only " + got.size() + " of " + count + " timers came");
      }
      Thread.sleep(200);
    } finally {
      consumer.shutdown();
    }
    if (nanos.size() != count || Collections.min(nanos) < 0) {
      throw new IllegalStateException(
          nanos.size() + " timers came, not " + count + ", the first " + Collections.min(nanos) + " ns late");
    }
    times(nanos);
  }

  private static void times(List<Long> nanos) {
    Collections.sort(nanos);
    int count = nanos.size();
    say(new JSONObject()
        .fluentPut("messages", count)
        .fluentPut("p50_ms", nanos.get(count / 2) / 1e6)
        .fluentPut("p99_ms", nanos.get(count * 99 / 100) / 1e6));
  }

  /** From the call of request() to its return; a consumer replies to each message. */
  private static void request(String topic, int count) throws Exception {
    made(topic);
    AtomicLong received = new AtomicLong();
    Object change = new Object();
    DefaultMQPushConsumer consumer =
        consumer("replies-" + topic, topic, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, (found, context) -> {
          for (Message each : found) {
            if (each.getProperty(MessageConst.PROPERTY_CORRELATION_ID) == null) {
              // The one that made the topic.
              synchronized (change) {
                received.set(System.nanoTime());
                change.notifyAll();
              }
              continue;
            }
            try {
              check(producer.send(MessageUtil.createReplyMessage(each, BODY)));
            } catch (Exception error) {
              return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
          }
          return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    List<Long> nanos = new ArrayList<>();
    try {
      await(received, change, 0);
      // The broker replies to the connection of a heartbeat, which the first call sends.
      producer.request(new Message(topic, BODY), 20_000);
      for (int each = 0; each < count; each++) {
        long began = System.nanoTime();
        producer.request(new Message(topic, BODY), 20_000);
        nanos.add(System.nanoTime() - began);
      }
    } finally {
      consumer.shutdown();
    }
    times(nanos);
  }

  /** A read and a send that begin together on one connection, until both are answered. */
  private static void pair(String topic, int count) throws Exception {
    MessageQueue queue = made(topic).get(0);
    String address = producer.getDefaultMQProducerImpl().getmQClientFactory()
        .findBrokerAddressInPublish(queue.getBrokerName());
    NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
    client.start();
    List<Long> nanos = new ArrayList<>();
    try {
      for (int each = 0; each < count; each++) {
        Set<Integer> codes = ConcurrentHashMap.newKeySet();
        CountDownLatch both = new CountDownLatch(2);
        InvokeCallback answered = future -> {
          RemotingCommand answer = future.getResponseCommand();
          codes.add(answer == null ? -1 : answer.getCode());
          both.countDown();
        };
        long began = System.nanoTime();
        client.invokeAsync(address, readOf(queue), 20_000, answered);
        client.invokeAsync(address, sendOf(queue), 20_000, answered);
        boolean isOver = both.await(PATIENCE_S, TimeUnit.SECONDS);
        nanos.add(System.nanoTime() - began);
        if (!isOver || !codes.equals(Collections.singleton(0))) {
          throw new IllegalStateException("a pair of calls was answered with " + codes);
        }
      }
    } finally {
      client.shutdown();
    }
    times(nanos);
  }

  private static RemotingCommand readOf(MessageQueue queue) {
    GetMaxOffsetRequestHeader header = new GetMaxOffsetRequestHeader();
    header.setTopic(queue.getTopic());
    header.setQueueId(queue.getQueueId());
    return RemotingCommand.createRequestCommand(RequestCode.GET_MAX_OFFSET, header);
  }

  private static RemotingCommand sendOf(MessageQueue queue) {
    SendMessageRequestHeader header = new SendMessageRequestHeader();
    header.setProducerGroup("load");
    header.setTopic(queue.getTopic());
    header.setDefaultTopic("TBW102");
    header.setDefaultTopicQueueNums(4);
    header.setQueueId(queue.getQueueId());
    header.setSysFlag(0);
    header.setBornTimestamp(System.currentTimeMillis());
    header.setFlag(0);
    header.setProperties("");
    header.setReconsumeTimes(0);
    header.setUnitMode(false);
    header.setBatch(false);
    RemotingCommand send = RemotingCommand.createRequestCommand(
        RequestCode.SEND_MESSAGE_V2,
        SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(header));
    send.setBody(BODY);
    return send;
  }

  private static void await(AtomicLong received, Object change, long began) throws Exception {
    long until = System.nanoTime() + PATIENCE_S * 1_000_000_000L;
    synchronized (change) {
      while (received.get() <= began) {
        if (System.nanoTime() > until) {
          throw new IllegalStateException("a message did not come");
        }
        change.wait(100);
      }
    }
  }
}
