package phaselock;

import com.mongodb.client.MongoClients;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.TimeZone;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import net.javacrumbs.shedlock.provider.mongo.MongoLockProvider;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.bson.Document;
import org.springframework.data.redis.connection.RedisPassword;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.SingleConnectionDataSource;

/**
 * The real ShedLock as another process with the same locks: obeys one JSON line at a time and answers with one, as holder.mjs does.
 * Its arguments are the URL of the server and, for PostgreSQL and MySQL, whose time it goes by: db (usingDbTime), jvm (as it comes) or utc
 * (withTimeZone). Times in answers are this machine's, in milliseconds.
 */
public final class ShedLockHolder {
    private static final Object OUT = new Object();

    public static void main(String[] args) throws Exception {
        LockProvider provider = providerOf(args[0], args.length > 1 ? args[1] : "db");
        say(new Document("ready", true));
        SimpleLock[] held = new SimpleLock[1];
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Document asked = Document.parse(line);
            String op = asked.getString("op");
            try {
                say(new Document("op", op).append("answer", answer(provider, held, op, asked)));
            } catch (Exception error) {
                say(new Document("op", op).append("error", String.valueOf(error)));
            }
        }
        System.exit(0);
    }

    private static Object answer(LockProvider provider, SimpleLock[] held, String op, Document asked) throws Exception {
        switch (op) {
            case "lock": {
                Instant createdAt = Instant.now();
                Optional<SimpleLock> lock = provider.lock(configuration(asked, asked.getString("name"), createdAt));
                lock.ifPresent(one -> held[0] = one);
                return lock.isEmpty() ? null : moments(createdAt);
            }
            case "unlock":
                held[0].unlock();
                return true;
            case "fight":
                return fight(provider, asked);
            default:
                throw new IllegalArgumentException(op);
        }
    }

    private static LockConfiguration configuration(Document asked, String name, Instant createdAt) {
        return new LockConfiguration(
                createdAt,
                name,
                Duration.ofMillis(asked.getInteger("lockAtMostFor")),
                Duration.ofMillis(asked.getInteger("lockAtLeastFor")));
    }

    /** The lock was granted between the two. */
    private static Document moments(Instant createdAt) {
        return new Document("since", (double) createdAt.toEpochMilli()).append("entered", (double) System.currentTimeMillis());
    }

    /** Takes and releases the locks in turn, in two threads, and writes to the log when it enters and leaves. */
    private static Document fight(LockProvider provider, Document asked) throws Exception {
        List<String> names = asked.getList("names", String.class);
        int times = asked.getInteger("times");
        List<Exception> failures = new ArrayList<>();
        try (FileChannel log =
                FileChannel.open(Path.of(asked.getString("log")), StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            List<Thread> threads = new ArrayList<>();
            for (int t = 0; t < 2; t++) {
                int first = t;
                threads.add(new Thread(() -> {
                    try {
                        for (int i = first; i < times; i += 2) one(provider, asked, names.get(i % names.size()), log);
                    } catch (Exception error) {
                        synchronized (failures) {
                            failures.add(error);
                        }
                    }
                }));
            }
            for (Thread thread : threads) thread.start();
            for (Thread thread : threads) thread.join();
        }
        if (!failures.isEmpty()) throw failures.get(0);
        return new Document("done", times);
    }

    private static void one(LockProvider provider, Document asked, String name, FileChannel log) throws Exception {
        for (; ; Thread.sleep(8)) {
            Instant createdAt = Instant.now();
            Optional<SimpleLock> lock = provider.lock(configuration(asked, name, createdAt));
            if (lock.isEmpty()) continue;
            append(log, moments(createdAt).append("lock", name).append("who", "java").append("enters", true));
            Thread.yield();
            append(log, new Document("lock", name).append("who", "java").append("enters", false));
            lock.get().unlock();
            return;
        }
    }

    /** One write to a file that is opened for appending: the lines of all processes have one order. */
    private static void append(FileChannel log, Document line) throws Exception {
        log.write(ByteBuffer.wrap((line.toJson() + "\n").getBytes(StandardCharsets.UTF_8)));
    }

    private static LockProvider providerOf(String url, String time) {
        URI uri = URI.create(url);
        String[] login = Optional.ofNullable(uri.getUserInfo()).orElse(":").split(":", 2);
        switch (uri.getScheme()) {
            case "mongodb":
                return new MongoLockProvider(MongoClients.create(url).getDatabase(uri.getPath().substring(1)));
            case "mysql":
            case "postgres": {
                String driver = uri.getScheme().equals("mysql") ? "mariadb" : "postgresql";
                String jdbc = "jdbc:" + driver + "://" + uri.getHost() + ":" + uri.getPort() + uri.getPath();
                JdbcTemplate template = new JdbcTemplate(new PerThread(jdbc, login[0], login[1]));
                JdbcTemplateLockProvider.Configuration.Builder builder =
                        JdbcTemplateLockProvider.Configuration.builder().withJdbcTemplate(template);
                if (time.equals("db")) builder.usingDbTime();
                if (time.equals("utc")) builder.withTimeZone(TimeZone.getTimeZone("UTC"));
                return new JdbcTemplateLockProvider(builder.build());
            }
            default: {
                RedisStandaloneConfiguration server = new RedisStandaloneConfiguration(uri.getHost(), uri.getPort());
                server.setPassword(RedisPassword.of(login[1]));
                JedisConnectionFactory factory = new JedisConnectionFactory(server);
                factory.afterPropertiesSet();
                factory.start();
                return new RedisLockProvider(factory);
            }
        }
    }

    /** One connection for each thread: a pool would be one more dependency. */
    private static final class PerThread extends org.springframework.jdbc.datasource.AbstractDataSource {
        private final ThreadLocal<SingleConnectionDataSource> own;

        PerThread(String url, String user, String password) {
            own = ThreadLocal.withInitial(() -> new SingleConnectionDataSource(url, user, password, true));
        }

        @Override
        public java.sql.Connection getConnection() throws java.sql.SQLException {
            return own.get().getConnection();
        }

        @Override
        public java.sql.Connection getConnection(String user, String password) throws java.sql.SQLException {
            return getConnection();
        }
    }

    private static void say(Document line) {
        synchronized (OUT) {
            System.out.println(line.toJson());
        }
    }
}
