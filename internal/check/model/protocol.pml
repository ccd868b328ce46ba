/* Nodes, their sessions and a store: one job that retries what fails or is lost, and whose runs
 * never overlap. Each atomic block is one step of the store, or one step of a node that nothing
 * interrupts. A step may come at any time or never, so a node that is cut off, frozen or slow needs
 * no step of its own. docs/model.md explains the model to a reader who does not know Promela.
 *
 * BREAK names a fault. Without one no assertion fails. With REPLAY the steps of the store follow a
 * trace of the simulation, and time does not pass. */

#ifndef NODES
#define NODES 2
#endif
#ifndef OCCURRENCES
#define OCCURRENCES 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef SESSIONS
#define SESSIONS 3 /* the most sessions of a node */
#endif
#ifndef FENCE
#define FENCE 1 /* ticks without an acknowledged renewal, after which a node ends what it runs */
#endif
#define LOST_AFTER (FENCE + 1) /* ticks without a renewal in the store, after which another node declares a loss */

/* The faults. */
#define ANY_CURSOR 1         /* a plan does not compare the cursor */
#define NO_FLOOR 2           /* a resume plans again what was claimed before */
#define CURSOR_FIRST 3       /* the cursor moves in a step before the run is made */
#define CLAIM_TWICE 4        /* a claim does not compare the state */
#define RELEASE_BEGUN 5      /* a new process gives back attempts that have begun */
#define ANY_EPOCH 6          /* a claim does not compare the epoch */
#define NO_SLOT 7            /* a claim takes no slot */
#define FREE_SLOT 8          /* the slot is free while a retry waits */
#define NO_FENCE 9           /* a node that is cut off ends nothing */
#define FENCE_FROM_ANSWER 10 /* the fence counts from the answer of a renewal, not from its request */
#define REAP_ENDED 11        /* a loss does not compare the state */
#define ANY_CLAIM 12         /* a result does not compare its claim */
#define START_LATE 13        /* a start does not look at the fence */
#define RETRY_FOREVER 14     /* a retry does not count the attempts */
#define FORGET_RESULT 15     /* a result is acknowledged before it is written */
#define MISS_ANY 16          /* a claim misses an occurrence without an absence */
#define FENCED_FORGOTTEN 17  /* a node does not report what its fence has ended */

/* Bounds and fault of a search, from the variables of its environment. */
byte BREAK;
byte DEATHS; /* of processes, in all */
byte EDITS;  /* pauses, each followed by a resume */
byte WEAK;   /* nodes whose renewals may fail; the others renew in time */
c_decl {
	static int number(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }
}

#ifdef REPLAY
#define CHECK(x) skip
#define ANY(i) i = RUN
#define RUN nextRun
#define DID(what, n, i) (nextKind == what && nextNode == (n) && nextRun == (i))
#define SEEN c_code { now.pos++; look(); }
#define FENCED(n) false
#define TIMELY(n) true
#define SILENT(n) true
#define REPLAYED true
#else
#define CHECK(x) assert(x)
#if OCCURRENCES == 2
#define ANY(i) if :: i = 0 :: i = 1 fi
#else
#define ANY(i) if :: i = 0 :: i = 1 :: i = 2 fi
#endif
#define DID(what, n, i) true
#define SEEN skip
#define FENCED(n) (node[n].age >= FENCE)
#define TIMELY(n) (node[n].age < FENCE || BREAK == START_LATE)
#define SILENT(n) (session[n].age >= LOST_AFTER)
#define REPLAYED false
#endif

/* What a trace tells. */
#define CREATE 1
#define CLAIM 2
#define SKIP 3
#define MISS 4
#define RELEASE 5
#define SUCCEED 6
#define FAIL 7
#define LOSE 8
#define JOIN 9

mtype = { none, ready, running, done }
mtype = { open, succeeded, failed, lost, skipped, missed, withdrawn }

/* The store. Runs have the numbers of their occurrences. */
typedef Run {
	mtype state, outcome;
	byte epoch, attempt;
	byte holder; /* the node of the attempt plus 1 */
	byte session /* of that node */
}
Run r[OCCURRENCES];
byte epoch, cursor, floor, slot /* run plus 1 */;
bool paused;
typedef Session { bool over; byte number, age /* ticks since the store had its last renewal */ }
Session session[NODES];

/* The nodes. Claimed, executing and ended are runs plus 1, or 0. */
typedef Node {
	bool down;                  /* the process is dead: only its watchdog acts */
	byte session;
	byte age;                   /* ticks since the request of the last acknowledged renewal */
	bool asked, applied;        /* a renewal is in flight, and the store has made it */
	byte askedAge;
	byte claimed, claimedAttempt;
	byte executing, executingAttempt;
	byte ended, endedAttempt;
	mtype result                /* of what has ended: lost if the fence has ended it */
}
Node node[NODES];

/* A plan in flight: what some planner read, at any earlier time. Others are made as they are read. */
bool planned; byte readCursor, readEpoch;
byte half; /* CURSOR_FIRST: the run that is not made yet, plus 1 */

/* What happened, for the assertions alone. */
byte made[OCCURRENCES];                /* runs of an occurrence that were not withdrawn */
byte started[OCCURRENCES];             /* a bit for each attempt */
bool acknowledged[OCCURRENCES];        /* a success that a node has the answer for */
bool absent[OCCURRENCES];              /* all nodes were away after the run was made */
byte withdrawnBefore;                  /* the first epoch that an acknowledged pause allows */
byte deaths, edits;
#ifdef REPLAY
/* The next step of the trace, whose kinds, nodes and runs are arrays in trace.h. At its end the kind is 0. */
short pos;
byte nextKind, nextNode, nextRun;
c_decl {
	\#include "trace.h"
}
c_code {
	static int followed;
	static void look(void) {
		if (now.pos > followed) printf("followed: %d\n", followed = now.pos);
		int last = now.pos >= (int)sizeof kinds;
		now.nextKind = last ? 0 : kinds[now.pos]; now.nextNode = last ? 0 : nodes[now.pos]; now.nextRun = last ? 0 : runs[now.pos];
	}
}
#endif

#define HOLDS(i, n, a) (r[i].state == running && r[i].attempt == (a) && r[i].holder == (n) + 1 && r[i].session == node[n].session)
#define ALIVE(n) (!node[n].down && !session[n].over && session[n].number == node[n].session)
#define IDLE(n) (node[n].claimed == 0 && node[n].executing == 0 && node[n].ended == 0)
#define BEGUN(i, a) (started[i] & (1 << (a)))

inline create(i) {
	r[i].state = ready; r[i].outcome = open; r[i].epoch = epoch; r[i].attempt = 0; r[i].holder = 0; r[i].session = 0;
	absent[i] = false; made[i]++;
	CHECK(made[i] <= 1) /* once */
}

inline free(i) { if :: slot == i + 1 -> slot = 0 :: else fi }

inline end(i, how) {
	r[i].state = done; r[i].outcome = how; r[i].holder = 0; r[i].session = 0; free(i);
	if :: REPLAYED -> started[i] = 0 :: else fi /* nothing asks for it again */
}

/* An attempt has ended without success: the next one follows, and the run keeps its slot. */
inline retry(i, how) {
	if
	:: r[i].attempt + 1 < ATTEMPTS || BREAK == RETRY_FOREVER ->
		CHECK(r[i].attempt + 1 < ATTEMPTS); /* bounded */
		r[i].attempt++; r[i].state = ready; r[i].holder = 0; r[i].session = 0;
		if :: BREAK == FREE_SLOT -> free(i) :: else fi
	:: else -> end(i, how)
	fi
}

/* An attempt that has not begun is given back. A first attempt gives back its slot too. */
inline release(i) {
	r[i].state = ready; r[i].holder = 0; r[i].session = 0;
	if :: r[i].attempt == 0 -> free(i) :: else fi
}

inline settle(i, how) {
	CHECK(r[i].attempt == 0); /* accounted: what has begun is not skipped */
	end(i, how);
	if :: floor < i + 1 -> floor = i + 1 :: else fi
}

/* The node has an answer to its report, or its memory is gone. */
inline forget(n) { node[n].ended = 0; node[n].endedAttempt = 0; node[n].result = open }

#define WITHDRAWN(i) (paused && r[i].attempt == 0 || r[i].epoch != epoch && r[i].attempt == 0)

proctype planner() {
	do
	:: atomic { !planned && !REPLAYED -> readCursor = cursor; readEpoch = epoch; planned = true }
	:: atomic { planned && half == 0 ->
		if
		:: !paused && readEpoch == epoch && readCursor < OCCURRENCES && (readCursor == cursor || BREAK == ANY_CURSOR) && DID(CREATE, 0, readCursor) ->
			cursor = readCursor + 1;
			if
			:: BREAK == CURSOR_FIRST -> half = cursor
			:: else -> create(readCursor)
			fi;
			SEEN
		:: else
		fi;
		planned = false; readCursor = 0; readEpoch = 0 }
	/* Another planner reads and plans before that plan arrives. */
	:: atomic { !paused && cursor < OCCURRENCES && half == 0 && BREAK != CURSOR_FIRST && DID(CREATE, 0, cursor) ->
		create(cursor); cursor++; SEEN }
	:: atomic { half > 0 -> create(half - 1); half = 0 }
	:: atomic { half > 0 -> half = 0 /* the planner dies between the two steps */ }
	od
}

proctype worker(byte n) {
	byte i, m;
	do
	/* Claim a run. The answer may be lost: then the node knows of nothing. */
	:: atomic { ALIVE(n) && IDLE(n) ->
		ANY(i);
		if
		:: (r[i].state == ready || BREAK == CLAIM_TWICE && r[i].state == running) && (!WITHDRAWN(i) || BREAK == ANY_EPOCH) ->
			if
			:: (slot == 0 || slot == i + 1 || BREAK == NO_SLOT) && DID(CLAIM, n, i) ->
				CHECK(r[i].epoch >= withdrawnBefore || r[i].attempt > 0); /* withdrawn means withdrawn */
				r[i].state = running; r[i].holder = n + 1; r[i].session = node[n].session; slot = i + 1;
				if :: floor < i + 1 -> floor = i + 1 :: else fi;
				if
				:: node[n].claimed = i + 1; node[n].claimedAttempt = r[i].attempt
				:: skip /* the answer is lost */
				fi;
				SEEN
			:: (slot != 0 && slot != i + 1 || slot == 0 && i > 0 && r[i - 1].state == ready) && r[i].state == ready && DID(SKIP, 0, i) -> settle(i, skipped); SEEN /* another one has the slot, or has waited longer for it */
			:: r[i].state == ready && r[i].attempt == 0 && (absent[i] || REPLAYED || BREAK == MISS_ANY) && DID(MISS, 0, i) ->
				CHECK(absent[i]); /* accounted, for the right reason */
				settle(i, missed); SEEN
			:: else
			fi
		:: else
		fi; i = 0 }
	/* Give back what the store holds for this session, and the process does not know. */
	:: atomic { ALIVE(n) && IDLE(n) ->
		ANY(i);
		if :: HOLDS(i, n, r[i].attempt) && DID(RELEASE, n, i) -> release(i); SEEN :: else fi; i = 0 }
	/* Start what was claimed, or not: past the fence, or if the node drains. */
	:: atomic { !node[n].down && node[n].claimed > 0 ->
		if
		:: TIMELY(n) ->
			i = node[n].claimed - 1;
			CHECK(!BEGUN(i, node[n].claimedAttempt)); /* started once */
			started[i] = started[i] | (1 << node[n].claimedAttempt);
			node[n].executing = i + 1; node[n].executingAttempt = node[n].claimedAttempt;
			m = 0;
			do
			:: m < NODES -> CHECK(m == n || node[m].executing == 0); m++ /* overlap */
			:: else -> break
			od;
			m = 0; i = 0
		:: skip
		fi;
		node[n].claimed = 0; node[n].claimedAttempt = 0 }
	/* The command ends. */
	:: atomic { !node[n].down && node[n].executing > 0 ->
		node[n].ended = node[n].executing; node[n].endedAttempt = node[n].executingAttempt;
		if :: node[n].result = succeeded :: node[n].result = failed fi;
		node[n].executing = 0; node[n].executingAttempt = 0 }
	/* Report the result. The report is repeated until an answer comes. */
	:: atomic { !node[n].down && node[n].ended > 0 && (!REPLAYED || !HOLDS(node[n].ended - 1, n, node[n].endedAttempt) ||
			node[n].result == succeeded && DID(SUCCEED, n, node[n].ended - 1) || node[n].result == failed && DID(FAIL, n, node[n].ended - 1)) ->
		i = node[n].ended - 1;
		if
		:: HOLDS(i, n, node[n].endedAttempt) || BREAK == ANY_CLAIM && r[i].state == running ->
			CHECK(HOLDS(i, n, node[n].endedAttempt)); /* a result belongs to its claim */
			if
			:: BREAK == FORGET_RESULT -> acknowledged[i] = (node[n].result == succeeded)
			:: BREAK != FORGET_RESULT && node[n].result == succeeded -> end(i, succeeded)
			:: BREAK != FORGET_RESULT && node[n].result != succeeded -> retry(i, node[n].result)
			fi;
			SEEN
		:: else
		fi;
		if
		:: acknowledged[i] = !REPLAYED && (acknowledged[i] || r[i].outcome == succeeded && node[n].result == succeeded); forget(n)
		:: skip /* the answer is lost */
		fi; i = 0 }
	od
}

/* Sessions: renewals, fences, losses, and the death of processes. */
proctype membership(byte n) {
	byte i;
	do
#ifndef REPLAY
	:: atomic { n < WEAK && ALIVE(n) && !node[n].asked -> node[n].asked = true; node[n].askedAge = 0 }
	:: atomic { node[n].asked && !node[n].applied && !session[n].over && session[n].number == node[n].session -> session[n].age = 0; node[n].applied = true }
	:: atomic { !node[n].down && node[n].applied ->
		node[n].age = (BREAK == FENCE_FROM_ANSWER -> 0 : node[n].askedAge); node[n].asked = false; node[n].applied = false; node[n].askedAge = 0 }
#endif
	/* The fence: the node, or the watchdog of a dead process, ends what it runs. The node reports it
	 * as lost: it must not give back an attempt that has begun. */
	:: atomic { node[n].executing > 0 && (FENCED(n) || node[n].down) && BREAK != NO_FENCE ->
		if :: !node[n].down && BREAK != FENCED_FORGOTTEN -> node[n].ended = node[n].executing; node[n].endedAttempt = node[n].executingAttempt; node[n].result = lost :: else fi;
		node[n].executing = 0; node[n].executingAttempt = 0 }
	/* Another node declares a loss: the session is silent, or the node has begun another one. */
	:: atomic {
		ANY(i);
		if
		:: (r[i].state == running || BREAK == REAP_ENDED && r[i].state == done && r[i].outcome == succeeded) &&
		   (r[i].holder == n + 1 && (SILENT(n) || r[i].session != session[n].number) || BREAK == REAP_ENDED && SILENT(n)) && DID(LOSE, n, i) ->
			CHECK(node[n].executing != i + 1); /* no zombies */
			if :: r[i].session == session[n].number -> session[n].over = true :: else fi;
			retry(i, lost); SEEN
		:: else
		fi; i = 0 }
	/* The next process on the machine gives back what the last one had not begun. */
	:: atomic { ALIVE(n) ->
		ANY(i);
		if
		:: r[i].state == running && r[i].holder == n + 1 && r[i].session != node[n].session && (!BEGUN(i, r[i].attempt) || BREAK == RELEASE_BEGUN) && DID(RELEASE, n, i) ->
			release(i); SEEN
		:: else
		fi; i = 0 }
	/* A process dies. Its memory is gone; its command runs until the watchdog has ended it. */
	:: atomic { !node[n].down && (REPLAYED && DID(JOIN, n, 0) || deaths < DEATHS) ->
		if :: REPLAYED :: else -> deaths++ fi;
		node[n].down = true; node[n].claimed = 0; node[n].claimedAttempt = 0; forget(n);
		node[n].asked = false; node[n].applied = false; node[n].askedAge = 0;
		i = 0;
		do :: i < NODES && node[i].down -> i++ :: else -> break od;
		if
		:: i == NODES && !REPLAYED -> i = 0; do :: i < OCCURRENCES -> absent[i] = (r[i].state == ready); i++ :: else -> break od
		:: else
		fi; i = 0 }
	/* The next process on the machine, or a process whose session is over, begins a session. */
	:: atomic { (node[n].down || session[n].over) && node[n].executing == 0 && node[n].session + 1 < SESSIONS && DID(JOIN, n, 0) ->
		node[n].down = false; node[n].session++; node[n].age = 0; node[n].claimed = 0; node[n].claimedAttempt = 0;
		node[n].asked = false; node[n].applied = false; node[n].askedAge = 0;
		session[n].over = false; session[n].number = node[n].session; session[n].age = 0; SEEN }
	od
}

proctype client() {
	byte i;
	do
	:: atomic { edits < EDITS && !paused -> epoch++; paused = true; edits++; withdrawnBefore = epoch;
		i = 0;
		do
		:: i < OCCURRENCES ->
			if :: r[i].state == ready && r[i].attempt == 0 && i >= floor -> r[i].state = done; r[i].outcome = withdrawn; made[i]-- :: else fi;
			i++
		:: else -> break
		od; i = 0 }
	/* What was withdrawn is planned again: the cursor goes back, and never below the floor. */
	:: atomic { paused -> epoch++; paused = false; if :: BREAK == NO_FLOOR -> cursor = 0 :: else -> cursor = floor fi }
	od
}

#ifndef REPLAY
/* Time passes for all alike. It does not pass a fence before the attempt has ended: that the node
 * or its watchdog ends it in time is what invariant 6 demands of them. */
proctype clock() {
	byte n;
	do
	:: atomic {
		n = 0;
		do
		:: n < NODES && !(node[n].executing > 0 && FENCED(n) && BREAK != NO_FENCE) -> n++
		:: else -> break
		od;
		if
		:: n == NODES ->
			n = 0;
			do
			:: n < NODES ->
				if :: (n < WEAK || node[n].down) && session[n].age < LOST_AFTER -> session[n].age++ :: else fi;
				if :: (n < WEAK || node[n].down) && node[n].age < FENCE -> node[n].age++ :: else fi;
				if :: node[n].asked && node[n].askedAge < FENCE -> node[n].askedAge++ :: else fi;
				n++
			:: else -> break
			od
		:: else
		fi; n = 0 }
	od
}

/* Accounted, and nothing acknowledged is lost: true after every step. */
#define ACCOUNTED(i) (cursor <= (i) || half == (i) + 1 && BREAK != CURSOR_FIRST || r[i].state != none && !(r[i].outcome == withdrawn && !paused))
#define KEPT(i) (!acknowledged[i] || r[i].state == done && r[i].outcome == succeeded)
proctype monitor() {
	do
	:: atomic { !(ACCOUNTED(0) && ACCOUNTED(1)) -> assert(false) }
	:: atomic { !(KEPT(0) && KEPT(1)) -> assert(false) }
	od
}
#endif

#ifdef REPLAY
proctype replayed() { nextKind == 0 -> assert(false) }
#endif

init {
	atomic {
		byte n;
		c_code { now.BREAK = number("FAULT"); now.DEATHS = number("DEATHS"); now.EDITS = number("EDITS"); now.WEAK = number("WEAK"); }
#ifdef REPLAY
		c_code { look(); }
#endif
		n = 0;
		do
		:: n < OCCURRENCES -> r[n].state = none; r[n].outcome = open; n++
		:: else -> break
		od;
		n = 0;
		do
		:: n < NODES -> node[n].result = open; run worker(n); run membership(n); n++
		:: else -> break
		od;
		n = 0;
		run planner(); run client();
#ifdef REPLAY
		/* The trace is one of the model if this fails. */
		run replayed()
#else
		run clock(); run monitor()
#endif
	}
}
