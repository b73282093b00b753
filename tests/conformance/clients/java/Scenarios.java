import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Does what the lines of JSON on its input say, with RocketMQ's own client; prints JSON lines. */
public class Scenarios {
  private static final PrintStream out = System.out;
  private static String names;
  private static RPCHook hook;
  private static final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
  private static final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
  private static final Map<String, CountDownLatch> gates = new ConcurrentHashMap<>();

  public static void main(String[] arguments) throws Exception {
    names = arguments[0];
    String key = System.getenv("ACCESS_KEY");
    if (key != null) {
      hook = signing(key, System.getenv("SECRET_KEY"));
    }
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JSONObject asked = JSON.parseObject(line);
      try {
        run(asked);
        say(new JSONObject().fluentPut("done", asked.getString("id")));
      } catch (Throwable error) {
        say(new JSONObject().fluentPut("error", error.toString()).fluentPut("id", asked.get("id")));
      }
    }
    consumers.values().forEach(DefaultMQPushConsumer::shutdown);
    producers.values().forEach(DefaultMQProducer::shutdown);
    System.exit(0);
  }

  /** The client of 5.3.2 has these classes in a jar that nothing else needs. */
  private static RPCHook signing(String key, String secret) throws ReflectiveOperationException {
    Class<?> credentials = Class.forName("org.apache.rocketmq.acl.common.SessionCredentials");
    Object mine = credentials.getConstructor(String.class, String.class).newInstance(key, secret);
    Class<?> signer = Class.forName("org.apache.rocketmq.acl.common.AclClientRPCHook");
    return (RPCHook) signer.getConstructor(credentials).newInstance(mine);
  }

  private static void run(JSONObject asked) throws Exception {
    switch (asked.getString("do")) {
      case "send": send(asked); break;
      case "recall": recall(asked); break;
      case "stream": new Thread(() -> stream(asked)).start(); break;
      case "push": push(asked); break;
      case "stop": consumers.remove(asked.getString("name")).shutdown(); break;
      case "let": gate(asked.getString("key")).countDown(); break;
      case "pull": pull(asked); break;
      case "lite": lite(asked); break;
      case "transact": transact(asked); break;
      case "answer": answer(asked); break;
      case "request": request(asked); break;
      case "mqadmin": mqadmin(asked); break;
      default: throw new IllegalArgumentException(asked.toString());
    }
  }

  private static synchronized void say(JSONObject said) {
    out.println(said.toJSONString());
    out.flush();
  }

  /** Where a client finds its name servers; it asks them every 5 s, not every 30 s. */
  private static void configure(ClientConfig client) {
    client.setNamesrvAddr(names);
    if (System.getenv("OWN_INTERVALS") != null) {
      return;
    }
    client.setPollNameServerInterval(5_000);
    client.setHeartbeatBrokerInterval(3_000);
  }

  private static DefaultMQProducer producer(String group, int retries) {
    return producers.computeIfAbsent(group, name -> {
      DefaultMQProducer made = new DefaultMQProducer(name, hook);
      configure(made);
      made.setInstanceName(name);
      made.setSendMsgTimeout(20_000);
      made.setRetryTimesWhenSendFailed(retries);
      made.setMaxMessageSize(8 << 20);
      try {
        made.start();
      } catch (Exception error) {
        throw new IllegalStateException(error);
      }
      return made;
    });
  }

  private static Message message(JSONObject asked, String key) {
    byte[] name = key.getBytes(StandardCharsets.UTF_8);
    byte[] body = Arrays.copyOf(name, Math.max(name.length, asked.getIntValue("size")));
    if (asked.getBooleanValue("random")) {
      // Does not shrink when it is compressed.
      new java.util.Random(1).nextBytes(body);
      System.arraycopy(name, 0, body, 0, name.length);
    }
    Message made = new Message(asked.getString("topic"), asked.getString("tags"), key, body);
    if (asked.getIntValue("level") > 0) {
      made.setDelayTimeLevel(asked.getIntValue("level"));
    }
    JSONObject timer = asked.getJSONObject("timer");
    if (timer != null) {
      timer.forEach((setter, value) -> setTimer(made, setter, ((Number) value).longValue()));
    }
    JSONObject properties = asked.getJSONObject("properties");
    if (properties != null) {
      properties.forEach((property, value) -> made.putUserProperty(property, (String) value));
    }
    return made;
  }

  /** By a setter, which only RocketMQ 5 has, or by the name of a property, which any client can. */
  private static void setTimer(Message message, String name, long value) {
    try {
      if (name.startsWith("set")) {
        Message.class.getMethod(name, long.class).invoke(message, value);
      } else {
        MessageAccessor.putProperty(message, name, String.valueOf(value));
      }
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  /** Takes a timer back, as only RocketMQ 5 can. */
  private static void recall(JSONObject asked) throws Exception {
    DefaultMQProducer producer = producer(asked.getString("group"), 2);
    try {
      Object id = DefaultMQProducer.class
          .getMethod("recallMessage", String.class, String.class)
          .invoke(producer, asked.getString("topic"), asked.getString("handle"));
      say(new JSONObject().fluentPut("recalled", id));
    } catch (InvocationTargetException error) {
      say(new JSONObject().fluentPut("refused", error.getCause().toString()));
    }
  }

  private static void send(JSONObject asked) throws Exception {
    DefaultMQProducer producer = producer(asked.getString("group"), 2);
    List<String> keys = asked.getJSONArray("keys").toJavaList(String.class);
    if ("batch".equals(asked.getString("how"))) {
      List<Message> batch = new ArrayList<>();
      keys.forEach(key -> batch.add(message(asked, key)));
      sent(String.join(" ", keys), producer.send(batch));
      return;
    }
    for (String key : keys) {
      Message message = message(asked, key);
      if ("oneway".equals(asked.getString("how"))) {
        producer.sendOneway(message);
        say(new JSONObject().fluentPut("sent", key).fluentPut("status", "ONE_WAY"));
      } else if ("async".equals(asked.getString("how"))) {
        async(producer, message, key);
      } else if (asked.containsKey("queue")) {
        sent(key, producer.send(message, (queues, m, id) -> queues.get((Integer) id), asked.get("queue")));
      } else {
        sent(key, producer.send(message));
      }
    }
  }

  private static void async(DefaultMQProducer producer, Message message, String key) throws Exception {
    CountDownLatch answered = new CountDownLatch(1);
    producer.send(message, new SendCallback() {
      @Override
      public void onSuccess(SendResult result) {
        sent(key, result);
        answered.countDown();
      }

      @Override
      public void onException(Throwable error) {
        say(new JSONObject().fluentPut("failed", key).fluentPut("error", error + " " + error.getCause()));
        answered.countDown();
      }
    });
    answered.await();
  }

  private static void sent(String key, SendResult result) {
    Object handle = null;
    try {
      handle = SendResult.class.getMethod("getRecallHandle").invoke(result);
    } catch (ReflectiveOperationException error) {
      // RocketMQ 4 has no recalls.
    }
    say(new JSONObject()
        .fluentPut("sent", key)
        .fluentPut("handle", handle)
        .fluentPut("status", result.getSendStatus().name())
        .fluentPut("queue", result.getMessageQueue().getQueueId())
        .fluentPut("offset", result.getQueueOffset())
        .fluentPut("id", result.getMsgId())
        .fluentPut("at", result.getOffsetMsgId()));
  }

  /** One message after the other, each key once: without an answer nothing is sent again. */
  private static void stream(JSONObject asked) {
    DefaultMQProducer producer = producer(asked.getString("group"), 0);
    int count = asked.getIntValue("count");
    for (int number = 0; number < count; number++) {
      String key = asked.getString("prefix") + number;
      try {
        sent(key, producer.send(message(asked, key)));
        Thread.sleep(asked.getIntValue("pause"));
      } catch (Exception error) {
        say(new JSONObject().fluentPut("failed", key).fluentPut("error", error + " " + error.getCause()));
        pause(200);
      }
    }
    say(new JSONObject().fluentPut("streamed", asked.getString("prefix")));
  }

  private static void pause(long milliseconds) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  private static void push(JSONObject asked) throws Exception {
    String name = asked.getString("name");
    DefaultMQPushConsumer consumer =
        new DefaultMQPushConsumer(
            asked.getString("group"), hook, new AllocateMessageQueueAveragely());
    configure(consumer);
    consumer.setInstanceName(name);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.setSuspendCurrentQueueTimeMillis(100);
    if (asked.getBooleanValue("broadcast")) {
      // RocketMQ 5 moved MessageModel to another package.
      consumer.setMessageModel(
          Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
    }
    if (asked.containsKey("max")) {
      consumer.setMaxReconsumeTimes(asked.getIntValue("max"));
    }
    if (asked.containsKey("pop")) {
      pop(consumer, asked.getJSONArray("pop"), asked.getLongValue("invisible"));
    }
    for (String topic : asked.getJSONArray("topics").toJavaList(String.class)) {
      if (asked.containsKey("sql")) {
        consumer.subscribe(topic, MessageSelector.bySql(asked.getString("sql")));
      } else {
        consumer.subscribe(topic, asked.getString("expression"));
      }
    }
    JSONObject fails = asked.getJSONObject("fails");
    if (asked.getBooleanValue("orderly")) {
      consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
        boolean isFine = true;
        for (MessageExt message : messages) {
          got(name, message);
          isFine &= message.getReconsumeTimes() >= times(fails, message);
        }
        return isFine ? ConsumeOrderlyStatus.SUCCESS
            : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
      });
    } else {
      consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        boolean isFine = true;
        for (MessageExt message : messages) {
          got(name, message);
          isFine &= message.getReconsumeTimes() >= times(fails, message);
          hold(asked, message);
        }
        context.setDelayLevelWhenNextConsume(asked.getIntValue("level"));
        return isFine ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
            : ConsumeConcurrentlyStatus.RECONSUME_LATER;
      });
    }
    consumers.put(name, consumer);
    consumer.start();
  }

  /** Lets the broker say how queues are read, as only RocketMQ 5 can; delays: seconds, of retries. */
  private static void pop(DefaultMQPushConsumer consumer, JSONArray delays, long invisible)
      throws ReflectiveOperationException {
    Class<?> shape = DefaultMQPushConsumer.class;
    shape.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
    shape.getMethod("setPopInvisibleTime", long.class).invoke(consumer, invisible);
    // They have no setter, and begin with 10 seconds.
    Object inner = shape.getMethod("getDefaultMQPushConsumerImpl").invoke(consumer);
    Field table = inner.getClass().getDeclaredField("popDelayLevel");
    table.setAccessible(true);
    for (int at = 0; at < delays.size(); at++) {
      Array.setInt(table.get(inner), at, delays.getIntValue(at));
    }
  }

  private static int times(JSONObject fails, MessageExt message) {
    return fails == null ? 0 : fails.getIntValue(message.getKeys());
  }

  /** Works on the first delivery of a message until it is let go. */
  private static void hold(JSONObject asked, MessageExt message) {
    JSONArray held = asked.getJSONArray("holds");
    if (held != null && held.contains(message.getKeys()) && message.getReconsumeTimes() == 0) {
      try {
        gate(message.getKeys()).await();
      } catch (InterruptedException error) {
        throw new IllegalStateException(error);
      }
    }
  }

  private static CountDownLatch gate(String key) {
    return gates.computeIfAbsent(key, name -> new CountDownLatch(1));
  }

  private static void got(String name, MessageExt message) {
    JSONObject said = new JSONObject()
        .fluentPut("got", message.getKeys())
        .fluentPut("by", name)
        .fluentPut("topic", message.getTopic())
        .fluentPut("queue", message.getQueueId())
        .fluentPut("offset", message.getQueueOffset())
        .fluentPut("times", message.getReconsumeTimes())
        .fluentPut("stored", message.getStoreTimestamp())
        .fluentPut("out", message.getProperty("TIMER_OUT_MS"))
        .fluentPut("tags", message.getTags())
        .fluentPut("size", message.getBody().length)
        .fluentPut("crc", message.getBodyCRC())
        .fluentPut("properties", message.getProperties().values().stream().mapToInt(String::length).sum());
    say(said);
  }

  @SuppressWarnings("deprecation")
  private static void pull(JSONObject asked) throws Exception {
    DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(asked.getString("group"));
    configure(consumer);
    consumer.setInstanceName(asked.getString("name"));
    consumer.start();
    for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(asked.getString("topic"))) {
      long offset = consumer.minOffset(queue);
      while (true) {
        PullResult result = consumer.pull(queue, asked.getString("expression"), offset, 32);
        if (result.getPullStatus() == PullStatus.FOUND) {
          result.getMsgFoundList().forEach(message -> got(asked.getString("name"), message));
        }
        if (result.getNextBeginOffset() == offset) {
          break;
        }
        offset = result.getNextBeginOffset();
      }
      consumer.updateConsumeOffset(queue, offset);
      if (consumer.maxOffset(queue) != offset) {
        throw new IllegalStateException("max offset " + consumer.maxOffset(queue));
      }
    }
    consumer.shutdown();
  }

  private static void lite(JSONObject asked) throws Exception {
    DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(asked.getString("group"));
    configure(consumer);
    consumer.setInstanceName(asked.getString("name"));
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.subscribe(asked.getString("topic"), asked.getString("expression"));
    consumer.start();
    for (int left = asked.getIntValue("count"); left > 0; ) {
      List<MessageExt> messages = consumer.poll(1_000);
      messages.forEach(message -> got(asked.getString("name"), message));
      left -= messages.size();
    }
    consumer.commitSync();
    consumer.shutdown();
  }

  /** Half messages.  decides: what a local transaction says of each key, checks: what it says later. */
  private static void transact(JSONObject asked) throws Exception {
    JSONObject decides = asked.getJSONObject("decides");
    JSONObject checks = asked.getJSONObject("checks");
    TransactionMQProducer producer = new TransactionMQProducer(asked.getString("group"));
    configure(producer);
    producer.setInstanceName(asked.getString("group"));
    producer.setSendMsgTimeout(20_000);
    producer.setTransactionListener(new TransactionListener() {
      @Override
      public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return LocalTransactionState.valueOf(decides.getString(message.getKeys()));
      }

      @Override
      public LocalTransactionState checkLocalTransaction(MessageExt message) {
        say(new JSONObject().fluentPut("checked", message.getKeys()));
        return LocalTransactionState.valueOf(checks.getString(message.getKeys()));
      }
    });
    producer.start();
    // It stays, because the broker asks it later.
    producers.put(asked.getString("group"), producer);
    for (String key : decides.keySet()) {
      sent(key, producer.sendMessageInTransaction(message(asked, key), null));
    }
  }

  /** A consumer that replies to each request with its body and an exclamation mark. */
  private static void answer(JSONObject asked) throws Exception {
    DefaultMQPushConsumer consumer =
        new DefaultMQPushConsumer(
            asked.getString("group"), hook, new AllocateMessageQueueAveragely());
    configure(consumer);
    consumer.setInstanceName(asked.getString("group"));
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.subscribe(asked.getString("topic"), "*");
    DefaultMQProducer replies = producer(asked.getString("group") + "-replies", 2);
    consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
      for (MessageExt message : messages) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8) + "!";
        try {
          byte[] reply = body.getBytes(StandardCharsets.UTF_8);
          replies.send(MessageUtil.createReplyMessage(message, reply));
        } catch (Exception error) {
          throw new IllegalStateException(error);
        }
      }
      return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
    });
    consumers.put(asked.getString("group"), consumer);
    consumer.start();
  }

  private static void request(JSONObject asked) throws Exception {
    DefaultMQProducer producer = producer(asked.getString("group"), 2);
    Message reply = producer.request(message(asked, asked.getString("key")), 60_000);
    String body = new String(reply.getBody(), StandardCharsets.UTF_8);
    say(new JSONObject().fluentPut("reply", body).fluentPut("to", asked.getString("key")));
  }

  /** A command of mqadmin; what it prints on both streams is said. */
  private static void mqadmin(JSONObject asked) throws Exception {
    if (System.getProperty("rocketmq.home.dir") == null) {
      Path home = Files.createTempDirectory("mqadmin");
      Files.createDirectory(home.resolve("conf"));
      Files.write(home.resolve("conf/logback_tools.xml"), "<configuration/>".getBytes());
      String key = System.getenv("ACCESS_KEY");
      if (key != null) {
        String account = "accessKey: " + key + "\nsecretKey: " + System.getenv("SECRET_KEY") + "\n";
        Files.write(home.resolve("conf/tools.yml"), account.getBytes());
      }
      System.setProperty("rocketmq.home.dir", home.toString());
    }
    List<String> words = asked.getJSONArray("words").toJavaList(String.class);
    ByteArrayOutputStream said = new ByteArrayOutputStream();
    PrintStream errors = System.err;
    PrintStream both = new PrintStream(said, true, "UTF-8");
    System.setOut(both);
    System.setErr(both);
    try {
      MQAdminStartup.main0(words.toArray(new String[0]), null);
    } finally {
      System.setOut(out);
      System.setErr(errors);
    }
    say(new JSONObject().fluentPut("printed", said.toString("UTF-8")));
  }
}
