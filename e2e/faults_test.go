package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// kind is a fault that people who run such a system have met.
type kind struct {
	what string
	// shown are the tests that show the whole kind: of this package by their name, of others as "folder.name". The first ones,
	// with real processes, show it as people meet it; those beside the code the corners that need the engine's inside.
	shown []string
}

const inEngine, inMailer, inOrders = "broker/redisstream.", "services/mailer.", "services/orders."

// faults is the index. Every kind applies to this system.
var faults = map[string]kind{
	"F02": {"the stream or its groups are gone, or Redis may evict them", []string{"TestF02GroupGone", "TestF02Evicting",
		inEngine + "TestGroupOrStreamGone", inEngine + "TestStreamGoneInAnOutage"}},
	"F03": {"a new group begins at the wrong place", []string{"TestF03StartOfAGroup"}},
	"F06": {"what a dead worker had is never looked at again", []string{"TestF06KilledWhileSending", "TestKillBeforeTheWork"}},
	"F08": {"what waits for its turn looks abandoned", []string{"TestF08WaitingIsNotIdle", inEngine + "TestQueuedEntriesAreAskedForBeforeALateStart"}},
	"F09": {"long work looks abandoned", []string{"TestF09LongWork", inEngine + "TestLongHandlerRunsOnce"}},
	"F11": {"a consumer is removed with its entries", []string{"TestF11OwnersThatEnd", inEngine + "TestIdleConsumersAreRemovedUnlessTheyHoldSomething"}},
	"F12": {"names of consumers pile up", []string{"TestF12Restarts", inEngine + "TestSecondConsumerOfANameTakesAnother",
		inEngine + "TestIdleConsumersAreRemovedUnlessTheyHoldSomething"}},
	"F13": {"an entry that cannot be read", []string{"TestF13Unreadable", "TestGarbage", inEngine + "TestMalformedForAnotherGroup"}},
	"F14": {"an entry that kills its worker, and one that is blamed for others' deaths", []string{"TestF14PoisonKills",
		"TestF14HealthyIsNotBlamed", inEngine + "TestCrashLoopBlamesTheRightEntry"}},
	"F15": {"the stream is trimmed before all have read", []string{"TestF15SlowGroup", inEngine + "TestTrimKeepsWhatAGroupHasNotDone",
		inEngine + "TestTrimRefusesWhileAGroupIsMissing"}},
	"F16": {"no progress, and health says all is well", []string{"TestF16RedisHangs", "TestF16HandlerHangs", "internal/ops.TestReadyzNeverHangs"}},
	"F17": {"stream and dead letters grow without bound or notice", []string{"TestF17NothingGrows", inEngine + "TestTrimByLength"}},
	"F18": {"blocking reads, time-outs and small pools", []string{"TestF18Idle", inEngine + "TestIdleConsumerIsQuiet"}},
	"F19": {"errors are retried without a pause", []string{"TestF19Outages", inEngine + "TestWrongTypeIsCalm", "outbox.TestOutageIsCalm"}},
	"F20": {"a write is repeated because its answer was lost", []string{"TestF20AnswerLost", "outbox.TestAnswerLost"}},
	"F21": {"the server takes no writes any more", []string{"TestF21ReadOnly", inEngine + "TestReaderLeavesADemotedServer", "outbox.TestReadOnly"}},
	"F23": {"ids and clocks that disagree", []string{"TestF23IDFromTheFuture", inEngine + "TestTrimWithOddTimes", inEngine + "TestTrimAfterSetID"}},
	"F24": {"one error or panic ends the reading", []string{"TestF24RefusedForAWhile", inEngine + "TestContract", "services/bonus.TestRefusedForAWhile"}},
	"F26": {"redriving a dead letter does nothing, or too much", []string{"TestRedrive", inEngine + "TestRedrive"}},
	"F28": {"several relays at once", []string{"TestF28ManyRelays", "outbox.TestReplicasPublishEachRowOnce", "outbox.TestReplicasKeepTheOrder"}},
	"F29": {"Postgres waits for Redis", []string{"TestF29RedisHangs", "outbox.TestRedisHangs"}},
	"F30": {"published and not marked", []string{"TestF30PublishedNotMarked", "TestEveryCrashPoint", "outbox.TestPublishedNotMarked"}},
	"F31": {"a backlog waits for new traffic", []string{"TestF31BacklogWithoutTraffic", "TestRedisAway", "outbox.TestSweepFindsRowsWithoutWake"}},
	"F32": {"the outbox grows, or loses what was not sent", []string{"TestF32OldRows", "outbox.TestRetention", "outbox.TestPlansDoNotAge", "outbox.TestWaitingUsesItsIndex"}},
	"F35": {"a commit that took place looks like a failure", []string{"TestF35AnswerOfTheCommitLost", inOrders + "TestCommitWithoutAnswer",
		inOrders + "TestCommitNeverAnswered", inOrders + "TestImpatientClients"}},
	"F40": {"bodies too large, endless or slow", []string{"TestF40LargestOrder", inOrders + "TestEndlessBody", inOrders + "TestSlowBodies",
		"outbox.TestRefusedRow", inEngine + "TestHugeEntry"}},
	"F41": {"text that gives orders to a mail server", []string{"TestF41AddressesThatGiveOrders", inOrders + "TestCheckEmail",
		inMailer + "TestMessageTakesNoOrdersFromData", inMailer + "TestParseMailbox"}},
	"F44": {"a kept connection is dead when it is wanted", []string{"TestF44ConnectionsThatBreak", inMailer + "TestIdleCloseAndMessageLimit"}},
	"F45": {"a mail was taken and nobody was told", []string{"TestF45AcceptedButNotTold", "TestF45KilledAfterTheAnswer",
		"TestEveryCrashPoint", inMailer + "TestKillWhileSending"}},
	"F46": {"addresses and names beyond ASCII", []string{"TestF46AddressesOfAllPeoples", inMailer + "TestSMTPUTF8", inMailer + "TestMessageLongName"}},
	"F47": {"workers that write the same rows at once", []string{"TestF47ManyWorkers", "services/bonus.TestReplicasNeverDeadlock",
		"services/analytics.TestSumsOfManyWorkers"}},
	"F48": {"the check for repeats fails itself", []string{"TestF48Repeats", "TestF48KillLoop", "TestEveryCrashPoint", "services/bonus.TestReplayAfterRetention",
		"services/analytics.TestLateEvents"}},
	// No pooler is declared as supported; the statements that would break behind one are sent unprepared all the same.
	"F49": {"the schema changes under running services", []string{"TestF49SchemaChanges", inOrders + "TestSchemaChanges", "services/bonus.TestSchemaChange", "outbox.TestSchemaChange"}},
	"F50": {"too few connections, or too many in all", []string{"TestF50SmallPools", inOrders + "TestConnectionBudget", "migrations.TestConnectionBudget"}},
	"F51": {"migrations at once, cut short, or newer than the program", []string{"migrations.TestFiveAtOnce", "migrations.TestDirtyIsLeftAlone",
		"migrations.TestNewerSchema", "migrations/cmd.TestKilledInTheMiddle"}},
	"F52": {"an order counts on the wrong day", []string{"TestF52WhichDay", "services/analytics.TestDays"}},
	// The signal's way into a container is Docker's part: how the program is started there, and how long it is given, is read from
	// the files.
	"F53": {"a stop in the middle of work", []string{"TestDrain", "TestF53StopWhileSending", "TestF53GraceTime", "internal/ops.TestMainEndsAtOnceOnASecondSignal"}},
	"F55": {"started before what it needs", []string{"TestF55StartsBeforeAll", "TestF55SchemaLater", "TestF55WrongPassword",
		"migrations/cmd.TestWaitsForPostgres"}},
}

// TestEveryFaultIsShown: the index names no test that does not exist, and no test of a fault is missing from it.
func TestEveryFaultIsShown(t *testing.T) {
	t.Parallel()
	const count = 38
	if len(faults) != count {
		t.Errorf("%d kinds of fault, want %d", len(faults), count)
	}
	indexed := map[string]bool{}
	known := map[string]map[string]bool{}
	for number, f := range faults {
		if f.what == "" || len(f.shown) == 0 {
			t.Errorf("%s has no words or no test", number)
		}
		for _, name := range f.shown {
			folder, test := "e2e", name
			if i := strings.LastIndexByte(name, '.'); i >= 0 {
				folder, test = name[:i], name[i+1:]
			} else {
				indexed[test] = true
			}
			if known[folder] == nil {
				known[folder] = testsIn(t, filepath.Join("..", folder))
			}
			if !known[folder][test] {
				t.Errorf("%s: there is no %s in %s", number, test, folder)
			}
		}
	}
	for test := range known["e2e"] {
		if strings.HasPrefix(test, "TestF") && len(test) > 7 && test[5] >= '0' && test[5] <= '9' && !indexed[test] {
			t.Errorf("%s is not in the index", test)
		}
	}
}

// testsIn returns the names of the tests of a folder.
func testsIn(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				tests[f.Name.Name] = true
			}
		}
	}
	return tests
}
