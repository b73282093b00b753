import java.io.BufferedReader;
import java.io.Closeable;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.shaded.com.google.gson.Gson;
import org.apache.rocketmq.shaded.com.google.gson.GsonBuilder;
import org.apache.rocketmq.shaded.com.google.gson.JsonObject;

/** Does what the lines of JSON on its input say, with the gRPC client for Java; prints JSON lines. */
public class Program {
  private static final PrintStream out = System.out;
  private static final Gson gson = new GsonBuilder().serializeNulls().create();
  private static final ClientServiceProvider provider = ClientServiceProvider.loadService();
  private static final Map<String, Producer> producers = new ConcurrentHashMap<>();
  private static final Map<String, Closeable> consumers = new ConcurrentHashMap<>();
  private static final Map<String, MessageView> held = new ConcurrentHashMap<>();
  private static final Pattern CODE = Pattern.compile("response-code=(\\d+)");
  private static String endpoint;

  private interface Work {
    void run() throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    endpoint = arguments[0];
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonObject asked = gson.fromJson(line, JsonObject.class);
      String id = text(asked, "id");
      try {
        run(asked);
        say("done", id);
      } catch (Throwable error) {
        say("error", error.toString(), "id", id);
      }
    }
    // A consumer's close waits for its long polls; nobody needs to wait for it.
    Thread closing = new Thread(Program::close);
    closing.setDaemon(true);
    closing.start();
    closing.join(500);
    Runtime.getRuntime().halt(0);
  }

  private static void close() {
    List<Closeable> all = new ArrayList<>(consumers.values());
    all.addAll(producers.values());
    all.parallelStream().forEach(each -> {
      try {
        each.close();
      } catch (Exception error) {
        error.printStackTrace();
      }
    });
  }

  private static void run(JsonObject asked) throws Exception {
    switch (text(asked, "do")) {
      case "send": send(asked); break;
      case "stream": stream(asked); break;
      case "recall": recall(asked); break;
      case "transact": transact(asked); break;
      case "simple": simple(asked); break;
      case "receive": receive(asked); break;
      case "ack": ack(asked); break;
      case "hold": hold(asked); break;
      case "push": push(asked); break;
      case "stop": consumers.remove(text(asked, "name")).close(); break;
      case "load": load(asked); break;
      case "drain": drain(asked); break;
      default: throw new IllegalArgumentException(asked.toString());
    }
  }

  private static synchronized void say(Object... namesAndValues) {
    Map<String, Object> said = new HashMap<>();
    for (int at = 0; at < namesAndValues.length; at += 2) {
      said.put((String) namesAndValues[at], namesAndValues[at + 1]);
    }
    out.println(gson.toJson(said));
    out.flush();
  }

  private static boolean has(JsonObject asked, String name) {
    return asked.has(name) && !asked.get(name).isJsonNull();
  }

  private static String text(JsonObject asked, String name) {
    return has(asked, name) ? asked.get(name).getAsString() : "";
  }

  private static int number(JsonObject asked, String name) {
    return has(asked, name) ? asked.get(name).getAsInt() : 0;
  }

  private static List<String> texts(JsonObject asked, String name) {
    return Arrays.asList(gson.fromJson(asked.get(name), String[].class));
  }

  private static Map<String, String> map(JsonObject asked, String name) {
    Map<String, String> found = new HashMap<>();
    if (has(asked, name)) {
      asked.getAsJsonObject(name).entrySet().forEach(
          each -> found.put(each.getKey(), each.getValue().getAsString()));
    }
    return found;
  }

  /** Send and the like wait as long as a busy machine needs. */
  private static ClientConfiguration configuration() {
    String key = System.getenv("ACCESS_KEY");
    ClientConfigurationBuilder made = ClientConfiguration.newBuilder()
        .setEndpoints(endpoint)
        .setRequestTimeout(Duration.ofSeconds(20))
        .enableSsl(System.getenv("WITH_TLS") != null);
    if (key != null) {
      String secret = System.getenv("SECRET_KEY");
      made.setCredentialProvider(new StaticSessionCredentialsProvider(key, secret));
    }
    return made.build();
  }

  private static Producer producer() throws ClientException {
    Producer found = producers.get("");
    if (found == null) {
      found = provider.newProducerBuilder().setClientConfiguration(configuration()).build();
      producers.put("", found);
    }
    return found;
  }

  private static Message message(JsonObject asked, String key) {
    byte[] name = key.getBytes(StandardCharsets.UTF_8);
    byte[] body = Arrays.copyOf(name, Math.max(name.length, number(asked, "size")));
    Arrays.fill(body, name.length, body.length, (byte) '.');
    MessageBuilder made = provider.newMessageBuilder()
        .setTopic(text(asked, "topic")).setKeys(key).setBody(body);
    if (has(asked, "tags")) {
      made.setTag(text(asked, "tags"));
    }
    if (has(asked, "ordered")) {
      made.setMessageGroup(text(asked, "ordered"));
    }
    if (has(asked, "at_ms")) {
      made.setDeliveryTimestamp(asked.get("at_ms").getAsLong());
    }
    map(asked, "properties").forEach(made::addProperty);
    return made.build();
  }

  private static void sent(String key, SendReceipt receipt) {
    String handle = receipt.getRecallHandle();
    say("sent", key, "id", receipt.getMessageId().toString(),
        "handle", handle == null || handle.isEmpty() ? null : handle);
  }

  private static void send(JsonObject asked) throws Exception {
    Producer sender = producer();
    for (String key : texts(asked, "keys")) {
      if (text(asked, "how").equals("async")) {
        sent(key, sender.sendAsync(message(asked, key)).get());
      } else {
        sent(key, sender.send(message(asked, key)));
      }
    }
  }

  /** One message after the other, each as often as it takes. */
  private static void stream(JsonObject asked) throws Exception {
    Producer sender = producer();
    new Thread(() -> {
      for (int number = 0; number < number(asked, "count"); number++) {
        String key = text(asked, "prefix") + number;
        for (boolean isSent = false; !isSent; ) {
          try {
            sent(key, sender.send(message(asked, key)));
            isSent = true;
          } catch (Exception error) {
            say("failed", key, "error", error.toString());
            pause(200);
          }
        }
        pause(number(asked, "pause"));
      }
      say("streamed", text(asked, "prefix"));
    }).start();
  }

  private static void pause(long milliseconds) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  /** A refusal is what some scenarios look for. */
  private static void refusable(Work work) throws Exception {
    try {
      work.run();
    } catch (ClientException | RuntimeException error) {
      say("refused", error.toString(), "code", codeOf(error));
    }
  }

  /** The client tells it in the text only: [request-id=…, response-code=40013] …. */
  private static Integer codeOf(Exception error) {
    Matcher found = CODE.matcher(error.toString());
    return found.find() ? Integer.valueOf(found.group(1)) : null;
  }

  private static void recall(JsonObject asked) throws Exception {
    refusable(() -> say("recalled",
        producer().recallMessage(text(asked, "topic"), text(asked, "handle"))
            .getMessageId().toString()));
  }

  private static void transact(JsonObject asked) throws Exception {
    String topic = text(asked, "topic");
    Map<String, String> checks = map(asked, "checks");
    ProducerBuilder builder = provider.newProducerBuilder()
        .setClientConfiguration(configuration())
        .setTopics(topic)
        .setTransactionChecker(view -> {
          String key = String.join(" ", view.getKeys());
          say("checked", key, "size", view.getBody().remaining());
          switch (checks.getOrDefault(key, "unknown")) {
            case "commit": return TransactionResolution.COMMIT;
            case "rollback": return TransactionResolution.ROLLBACK;
            default: return TransactionResolution.UNKNOWN;
          }
        });
    Producer sender = builder.build();
    // It stays, because the broker asks it later.
    producers.put("transactions of " + topic, sender);
    for (Map.Entry<String, String> each : map(asked, "decides").entrySet()) {
      Transaction transaction = sender.beginTransaction();
      sent(each.getKey(), sender.send(message(asked, each.getKey()), transaction));
      if (each.getValue().equals("commit")) {
        transaction.commit();
      } else if (each.getValue().equals("rollback")) {
        transaction.rollback();
      }
    }
  }

  private static Map<String, FilterExpression> subscriptions(JsonObject asked) {
    FilterExpression wanted = has(asked, "sql")
        ? new FilterExpression(text(asked, "sql"), FilterExpressionType.SQL92)
        : new FilterExpression(text(asked, "expression"), FilterExpressionType.TAG);
    Map<String, FilterExpression> made = new HashMap<>();
    texts(asked, "topics").forEach(topic -> made.put(topic, wanted));
    return made;
  }

  private static String keyOf(MessageView view) {
    return String.join(" ", new TreeSet<>(view.getKeys()));
  }

  private static String got(String name, MessageView view) {
    String key = keyOf(view);
    say("got", key,
        "by", name,
        "topic", view.getTopic(),
        "attempt", view.getDeliveryAttempt(),
        "tags", view.getTag().orElse(null),
        "ordered", view.getMessageGroup().orElse(null),
        "size", view.getBody().remaining(),
        "corrupted", false,
        "properties", view.getProperties(),
        "id", view.getMessageId().toString(),
        "at_ms", System.currentTimeMillis());
    return key;
  }

  private static void simple(JsonObject asked) throws Exception {
    consumers.put(text(asked, "name"), provider.newSimpleConsumerBuilder()
        .setClientConfiguration(configuration())
        .setConsumerGroup(text(asked, "group"))
        .setSubscriptionExpressions(subscriptions(asked))
        .setAwaitDuration(Duration.ofSeconds(number(asked, "await_s")))
        .build());
  }

  private static SimpleConsumer consumer(JsonObject asked) {
    return (SimpleConsumer) consumers.get(text(asked, "name"));
  }

  /** The messages stay at hand for ack and hold, by consumer and key. */
  private static void receive(JsonObject asked) throws Exception {
    String name = text(asked, "name");
    Duration invisible = Duration.ofSeconds(number(asked, "invisible_s"));
    refusable(() -> {
      for (MessageView view : consumer(asked).receive(number(asked, "count"), invisible)) {
        held.put(name + " " + keyOf(view), view);
        got(name, view);
      }
    });
  }

  private static void ack(JsonObject asked) throws Exception {
    for (String key : texts(asked, "keys")) {
      refusable(() -> consumer(asked).ack(held.get(text(asked, "name") + " " + key)));
    }
  }

  private static void hold(JsonObject asked) throws Exception {
    MessageView view = held.get(text(asked, "name") + " " + text(asked, "key"));
    Duration invisible = Duration.ofSeconds(number(asked, "seconds"));
    refusable(() -> consumer(asked).changeInvisibleDuration(view, invisible));
  }

  private static void push(JsonObject asked) throws Exception {
    String name = text(asked, "name");
    Map<String, Integer> left = new ConcurrentHashMap<>();
    map(asked, "fails").forEach((key, times) -> left.put(key, Integer.parseInt(times)));
    boolean isQuiet = has(asked, "quiet");
    int pause = number(asked, "pause");
    consumers.put(name, provider.newPushConsumerBuilder()
        .setClientConfiguration(configuration())
        .setConsumerGroup(text(asked, "group"))
        .setSubscriptionExpressions(subscriptions(asked))
        .setMessageListener(view -> {
          String key = isQuiet ? keyOf(view) : got(name, view);
          if (pause > 0) {
            pause(pause);
          }
          int fails = left.getOrDefault(key, 0);
          left.put(key, fails - 1);
          return fails > 0 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        })
        .build());
  }

  /** Send many as fast as it can, so many at a time; how long all of them took, and each. */
  private static void load(JsonObject asked) throws Exception {
    Producer sender = producer();
    List<Double> times = new ArrayList<>();
    int count = number(asked, "count");
    int together = number(asked, "together");
    long began = System.nanoTime();
    for (int first = 0; first < count; first += together) {
      long start = System.nanoTime();
      List<CompletableFuture<?>> sending = new ArrayList<>();
      for (int at = first; at < Math.min(first + together, count); at++) {
        sending.add(sender.sendAsync(message(asked, "l" + at)));
      }
      CompletableFuture.allOf(sending.toArray(new CompletableFuture<?>[0])).get();
      times.add((System.nanoTime() - start) / 1e9);
    }
    say("loaded", count, "seconds", (System.nanoTime() - began) / 1e9, "times", times);
  }

  /** Receive and acknowledge so many; how long each receive took with its acks. */
  private static void drain(JsonObject asked) throws Exception {
    SimpleConsumer consumer = consumer(asked);
    List<Double> times = new ArrayList<>();
    int count = number(asked, "count");
    long began = System.nanoTime();
    int left = count;
    while (left > 0) {
      long start = System.nanoTime();
      List<MessageView> views = consumer.receive(number(asked, "batch"), Duration.ofSeconds(60));
      for (MessageView view : views) {
        consumer.ack(view);
      }
      times.add((System.nanoTime() - start) / 1e9);
      left -= views.size();
    }
    say("drained", count - left, "seconds", (System.nanoTime() - began) / 1e9, "times", times);
  }
}
