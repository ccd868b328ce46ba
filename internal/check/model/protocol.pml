/* The protocol between nodes and a store, for one job that retries what was lost and whose
 * runs never overlap. Each atomic block is one step of the store, or one of a node that
 * nothing interrupts. Every step may come at any time or never, so a node that is cut off,
 * frozen or slow needs no step of its own. README.md explains the model.
 *
 * BREAK names a fault on purpose; without it no assertion fails. */

#ifndef NODES
#define NODES 2
#endif
#ifndef OCCURRENCES
#define OCCURRENCES 2
#endif
#ifndef CRASHES
#define CRASHES 1 /* of processes, in all */
#endif
#ifndef EDITS
#define EDITS 1 /* pauses, each followed by a resume */
#endif
#ifndef HORIZON
#define HORIZON 5 /* ticks */
#endif
#define ATTEMPTS 2 /* the second one after a loss */
#define FENCE 2 /* ticks without an acknowledged renewal, after which a node ends what it runs */
#define LOST_AFTER 3 /* ticks without a renewal in the store, after which another node declares a loss */

/* Faults, for BREAK. */
#define ANY_CURSOR 1 /* a plan does not compare the cursor */
#define NO_FLOOR 2 /* a resume plans again what was claimed before */
#define CURSOR_FIRST 3 /* the cursor moves in a step before the run is made */
#define CLAIM_TWICE 4 /* a claim does not compare the state */
#define RELEASE_BEGUN 5 /* a new process releases attempts that have begun */
#define ANY_EPOCH 6 /* a claim does not compare the epoch */
#define NO_SLOT 7 /* a claim takes no slot */
#define FREE_SLOT 8 /* a loss frees the slot although a retry follows */
#define NO_FENCE 9 /* a node that is cut off ends nothing */
#define FENCE_FROM_ANSWER 10 /* the fence counts from the answer of a renewal, not from its request */
#define REAP_ENDED 11 /* a loss does not compare the state */
#define ANY_TOKEN 12 /* a result does not compare its claim */
#define START_LATE 13 /* a start does not look at the fence */
#ifndef BREAK
#define BREAK 0
#endif

mtype = { none, ready, running, done }
mtype = { open, succeeded, lost, skipped, withdrawn }

/* The store. Runs are numbered as occurrences are. */
typedef Run {
	mtype state, outcome;
	byte epoch, attempt;
	byte holder; /* the node of the attempt plus 1 */
	byte process; /* of that node */
}
Run r[OCCURRENCES];
byte epoch, cursor, lowest /* the floor: a cursor never goes below it */, slot /* run plus 1 */;
bool paused;
typedef Session { bool over; byte process, renewed }
Session session[NODES];
byte now;

/* The nodes. Of claimed, executing and ended, each is a run plus 1, or 0. */
typedef Node {
	bool down; /* the process is dead: only its watchdog acts */
	byte process;
	byte age; /* ticks since the request of the last acknowledged renewal */
	bool asked, applied; /* a renewal is in flight, and the store has made it */
	byte askedAge;
	byte readCursor, readEpoch; bool read; /* for a plan */
	byte half; /* CURSOR_FIRST: the run that is not made yet */
	byte claimed, claimedAttempt;
	byte executing, executingAttempt;
	byte ended, endedAttempt;
	bool cut; /* it was ended by the fence */
}
Node node[NODES];

/* What happened, for the assertions alone. */
byte made[OCCURRENCES]; /* runs of an occurrence that were not withdrawn */
byte started[OCCURRENCES * ATTEMPTS];
bool acknowledged[OCCURRENCES];
byte pausedSince; /* the first epoch that an acknowledged pause allows */
byte crashes, edits;

#define HOLDS(i, n, a) (r[i].state == running && r[i].attempt == (a) && r[i].holder == (n) + 1 && r[i].process == node[n].process)
#define ALIVE(n) (!session[n].over && session[n].process == node[n].process)
#define AT(i, a) started[(i) * ATTEMPTS + (a)]

inline create(i) {
	r[i].state = ready; r[i].outcome = open; r[i].epoch = epoch; r[i].attempt = 0; r[i].holder = 0;
	made[i]++;
	assert(made[i] <= 1) /* once */
}

inline withdraw(i) {
	if
	:: r[i].state == ready && r[i].attempt == 0 && i >= lowest ->
		r[i].state = done; r[i].outcome = withdrawn; made[i]--
	:: else
	fi
}

inline free(i) {
	if :: slot == i + 1 -> slot = 0 :: else fi
}

/* loss ends an attempt of a node that no other node hears. */
inline loss(i) {
	if
	:: r[i].attempt + 1 < ATTEMPTS ->
		r[i].attempt++; r[i].state = ready; r[i].holder = 0;
		if :: BREAK == FREE_SLOT -> free(i) :: else fi
	:: else ->
		r[i].state = done; r[i].outcome = lost; free(i)
	fi
}

proctype planner(byte n) {
	do
	:: atomic { !node[n].down && !node[n].read -> node[n].readCursor = cursor; node[n].readEpoch = epoch; node[n].read = true }
	:: atomic { !node[n].down && node[n].read && node[n].half == 0 ->
		if
		:: !paused && node[n].readEpoch == epoch && node[n].readCursor < OCCURRENCES && (node[n].readCursor == cursor || BREAK == ANY_CURSOR) ->
			if
			:: BREAK == CURSOR_FIRST -> cursor = node[n].readCursor + 1; node[n].half = cursor
			:: else -> create(node[n].readCursor); cursor = node[n].readCursor + 1
			fi
		:: else
		fi;
		node[n].read = false }
	:: atomic { !node[n].down && node[n].half > 0 -> create(node[n].half - 1); node[n].half = 0 }
	od
}

proctype worker(byte n) {
	byte i;
	do
	/* Claim any run. The answer may be lost: then the node knows of nothing. */
	:: atomic { !node[n].down && node[n].claimed == 0 && node[n].executing == 0 && node[n].ended == 0 && ALIVE(n) ->
		select(i : 0 .. OCCURRENCES - 1);
		if
		:: (r[i].state == ready || BREAK == CLAIM_TWICE && r[i].state == running) && (!paused && r[i].epoch == epoch || BREAK == ANY_EPOCH || r[i].attempt > 0 && !paused) ->
			if
			:: slot == 0 || slot == i + 1 || BREAK == NO_SLOT ->
				assert(r[i].epoch >= pausedSince || r[i].attempt > 0); /* withdrawn means withdrawn */
				r[i].state = running; r[i].holder = n + 1; r[i].process = node[n].process; slot = i + 1;
				if :: lowest < i + 1 -> lowest = i + 1 :: else fi;
				if
				:: node[n].claimed = i + 1; node[n].claimedAttempt = r[i].attempt
				:: skip /* the answer is lost */
				fi
			:: else -> /* overlap: skip */
				r[i].state = done; r[i].outcome = skipped;
				if :: lowest < i + 1 -> lowest = i + 1 :: else fi
			fi
		:: else
		fi; i = 0 }
	/* Release what the store holds for this process, and the process does not know. */
	:: atomic { !node[n].down && node[n].claimed == 0 && node[n].executing == 0 && node[n].ended == 0 && ALIVE(n) ->
		select(i : 0 .. OCCURRENCES - 1);
		if :: HOLDS(i, n, r[i].attempt) -> r[i].state = ready; r[i].holder = 0; if :: r[i].attempt == 0 -> free(i) :: else fi :: else fi; i = 0 }
	/* Start what was claimed. */
	:: atomic { !node[n].down && node[n].claimed > 0 ->
		if
		:: node[n].age < FENCE || BREAK == START_LATE ->
			node[n].executing = node[n].claimed; node[n].executingAttempt = node[n].claimedAttempt;
			AT(node[n].claimed - 1, node[n].claimedAttempt)++;
			assert(AT(node[n].claimed - 1, node[n].claimedAttempt) <= 1); /* started once */
			i = 0;
			do
			:: i < NODES -> assert(i == n || node[i].executing == 0); i++ /* overlap */
			:: else -> break
			od;
			i = 0
		:: else /* past the fence: forgotten, and settled as its session ends */
		fi;
		node[n].claimed = 0; node[n].claimedAttempt = 0 }
	/* The command ends. */
	:: atomic { !node[n].down && node[n].executing > 0 ->
		node[n].ended = node[n].executing; node[n].endedAttempt = node[n].executingAttempt;
		node[n].executing = 0; node[n].executingAttempt = 0 }
	/* Report the result. It is tried again until an answer comes. */
	:: atomic { !node[n].down && node[n].ended > 0 ->
		i = node[n].ended - 1;
		if
		:: HOLDS(i, n, node[n].endedAttempt) || BREAK == ANY_TOKEN && r[i].state == running ->
			assert(BREAK == 0 || HOLDS(i, n, node[n].endedAttempt)); /* a result belongs to its claim */
			if
			:: node[n].cut -> loss(i)
			:: else -> r[i].state = done; r[i].outcome = succeeded; free(i)
			fi
		:: else
		fi;
		if
		:: acknowledged[i] = acknowledged[i] || r[i].outcome == succeeded; node[n].ended = 0; node[n].endedAttempt = 0; node[n].cut = false
		:: skip /* the answer is lost */
		fi; i = 0 }
	od
}

/* Sessions: renewals, fences, losses, and the death of processes. */
proctype membership(byte n) {
	byte i, m;
	do
	:: atomic { !node[n].down && !node[n].asked && ALIVE(n) -> node[n].asked = true; node[n].applied = false; node[n].askedAge = 0 }
	:: atomic { node[n].asked && !node[n].applied && !session[n].over -> session[n].renewed = now; node[n].applied = true }
	:: atomic { !node[n].down && node[n].asked && node[n].applied ->
		node[n].age = (BREAK == FENCE_FROM_ANSWER -> 0 : node[n].askedAge); node[n].asked = false; node[n].applied = false; node[n].askedAge = 0 }
	/* The fence: the node, or the watchdog of a dead process, ends what it runs. */
	:: atomic { node[n].executing > 0 && (node[n].age >= FENCE || node[n].down) && BREAK != NO_FENCE -> 
		if :: !node[n].down -> node[n].ended = node[n].executing; node[n].endedAttempt = node[n].executingAttempt; node[n].cut = true :: else fi;
		node[n].executing = 0; node[n].executingAttempt = 0 }
	/* Another node declares a loss. */
	:: atomic { now >= session[n].renewed + LOST_AFTER ->
		select(i : 0 .. OCCURRENCES - 1);
		if
		:: (r[i].state == running || BREAK == REAP_ENDED && r[i].state == done && r[i].outcome == succeeded) && r[i].holder == n + 1 && r[i].process == session[n].process ->
			assert(node[n].executing != i + 1); /* no zombies */
			session[n].over = true; loss(i)
		:: else
		fi; i = 0 }
	/* A process dies. Its memory is gone; its command runs until the watchdog has ended it. */
	:: atomic { !node[n].down && crashes < CRASHES -> crashes++;
		node[n].down = true; node[n].claimed = 0; node[n].claimedAttempt = 0; node[n].ended = 0; node[n].endedAttempt = 0; node[n].cut = false;
		node[n].read = false; node[n].readCursor = 0; node[n].readEpoch = 0; node[n].half = 0; node[n].asked = false; node[n].applied = false; node[n].askedAge = 0 }
	/* The next process on the machine: it settles what the dead one held, and begins a session. */
	:: atomic { node[n].down && node[n].executing == 0 ->
		i = 0;
		do
		:: i < OCCURRENCES ->
			if
			:: r[i].state == running && r[i].holder == n + 1 && r[i].process == node[n].process ->
				if
				:: AT(i, r[i].attempt) > 0 && BREAK != RELEASE_BEGUN -> loss(i)
				:: else -> r[i].state = ready; r[i].holder = 0; if :: r[i].attempt == 0 -> free(i) :: else fi
				fi
			:: else
			fi; i++
		:: else -> break
		od;
		i = 0; node[n].down = false; node[n].process++; node[n].age = 0;
		session[n].over = false; session[n].process = node[n].process; session[n].renewed = now }
	od
}

proctype client() {
	byte i;
	do
	:: atomic { edits < EDITS && !paused -> epoch++; paused = true; edits++; pausedSince = epoch;
		i = 0;
		do :: i < OCCURRENCES -> withdraw(i); i++ :: else -> break od; i = 0 }
	/* Withdrawn occurrences are planned again: the cursor goes back, never below the floor. */
	:: atomic { paused -> epoch++; paused = false; cursor = (BREAK == NO_FLOOR -> 0 : lowest) }
	od
}

/* Time passes for all alike. It does not pass a fence before the attempt has ended: that the
 * node or its watchdog ends it in time is what invariant 6 demands of them. */
proctype clock() {
	byte n;
	do
	:: atomic { now < HORIZON ->
		n = 0;
		do
		:: n < NODES ->
			if :: node[n].executing > 0 && node[n].age >= FENCE && BREAK != NO_FENCE -> goto hold :: else fi; n++
		:: else -> break
		od;
		now++; n = 0;
		do
		:: n < NODES ->
			if :: node[n].age < HORIZON -> node[n].age++ :: else fi;
			if :: node[n].asked && node[n].askedAge < HORIZON -> node[n].askedAge++ :: else fi;
			n++
		:: else -> break
		od;
hold:		n = 0 }
	od
}

/* Accounted, and nothing acknowledged is lost: true after every step. */
#define ACCOUNTED(i) (cursor <= (i) || r[i].state != none && !(r[i].state == done && r[i].outcome == withdrawn && !paused && cursor > (i)))
#define KEPT(i) (!acknowledged[i] || r[i].state == done && r[i].outcome == succeeded)
proctype monitor() {
end:	do
	:: atomic { !(ACCOUNTED(0) && ACCOUNTED(1)) -> assert(ACCOUNTED(0) && ACCOUNTED(1)) }
	:: atomic { !(KEPT(0) && KEPT(1)) -> assert(KEPT(0) && KEPT(1)) }
	od
}

init {
	atomic {
		byte n;
		n = 0;
		do
		:: n < OCCURRENCES -> r[n].state = none; r[n].outcome = open; n++
		:: else -> break
		od;
		n = 0;
		do
		:: n < NODES -> run planner(n); run worker(n); run membership(n); n++
		:: else -> break
		od;
		n = 0;
		run client(); run clock(); run monitor()
	}
}
