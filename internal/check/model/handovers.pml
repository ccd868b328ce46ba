/* The handover of one run's attempts to a service outside: docs/architecture.md, invariant 9. A node claims an
 * attempt, notes in the store that a service does the work, and sends it then. The service reports the end
 * to any server; a keeper ends what takes too long. Each atomic block comes at any time or never.
 *
 * BREAK names a fault. Without one no assertion fails. With REPLAY the steps of the store follow those of one run
 * in a trace of the simulation. */

#ifndef NODES
#define NODES 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef TOKENS
#define TOKENS 3 /* claims of all attempts */
#endif

#ifdef REPLAY
#define CHECK(x) skip
#define DID(what, n) (nextKind == what && nextNode == (n))
#define SEEN c_code { now.pos++; look(); }
#define REPLAYED true
#else
#define CHECK(x) assert(x)
#define DID(what, n) true
#define SEEN skip
#define REPLAYED false
#endif

/* What a trace tells. */
#define CLAIM 2
#define RELEASE 5
#define SUCCEED 6
#define FAIL 7 /* by the service, or by the fence of the node */
#define LOSE 8
#define HAND 10
#define TIME_OUT 11

/* The faults. */
#define SESSION_KEPT 1    /* a handed-over attempt stays in the session of its node */
#define SENT_FIRST 2      /* the request is sent before the handover is noted */
#define SENT_AGAIN 3      /* a request without an answer is sent again */
#define ANY_TOKEN 4       /* a result does not compare its token */
#define GIVEN_BACK 5      /* a node gives back what it has handed over */
#define SENT_LATE 6       /* a node sends what it noted long ago */
#define NOTED_LATE 7      /* a handover does not compare the claim */
#define ENDED_UNTOLD 8    /* the keeper ends an attempt without a word to the service */

byte BREAK;
byte DEATHS; /* of processes, in all */
c_decl {
	static int number(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }
}

mtype = { ready, running, done }
mtype = { open, succeeded, failed, lost, timedOut }
mtype = { idle, claimed, asked, noted }

/* The store. Tokens are the numbers of claims. */
mtype state, outcome;
byte attempt, token, holder /* the node whose session has the attempt, plus 1; 0 is handed over */, tokens;

/* The nodes: what they know of one claim. */
typedef Node { bool down; mtype does; byte token, attempt; bool late /* the time to send it is over */ }
Node node[NODES];

/* The service, by token. */
bool request[TOKENS + 1], working[TOKENS + 1], refused[TOKENS + 1], report[TOKENS + 1];
byte attemptOf[TOKENS + 1];
mtype result[TOKENS + 1];
byte begun; /* a bit for each attempt */
bool acknowledged;
byte deaths;
#ifdef REPLAY
/* The next step of the run TRACE, of which trace.h has the first and the last. At its end the kind is 0. */
short pos, last;
byte nextKind, nextNode;
c_decl {
	\#include "trace.h"
}
c_code {
	static void look(void) {
		now.nextKind = now.pos >= now.last ? 0 : kinds[now.pos]; now.nextNode = now.pos >= now.last ? 0 : nodes[now.pos];
	}
}
#endif

#define HOLDS(n) (state == running && token == node[n].token && attempt == node[n].attempt)

inline forget(n) { node[n].does = idle; node[n].token = 0; node[n].attempt = 0; node[n].late = false }

inline end(how) {
	holder = 0; token = 0;
	if
	:: how != succeeded && attempt + 1 < ATTEMPTS -> attempt++; state = ready
	:: else -> state = done; outcome = how
	fi
}

inline send(n) {
	request[node[n].token] = true; attemptOf[node[n].token] = node[n].attempt
}

proctype worker(byte n) {
	do
	/* A claim, whose answer may be lost. */
	:: atomic { !node[n].down && node[n].does == idle && state == ready && tokens < TOKENS && DID(CLAIM, n) ->
		SEEN;
		tokens++; state = running; token = tokens; holder = n + 1;
		if :: node[n].does = claimed; node[n].token = token; node[n].attempt = attempt :: skip fi }
	:: atomic { !node[n].down && node[n].does == claimed ->
		if :: BREAK == SENT_FIRST -> send(n) :: else fi;
		node[n].does = asked }
	/* The store notes the handover, however late the request comes. A repeated one gets the same answer. */
	:: atomic { node[n].does == asked ->
		if
		:: HOLDS(n) && (holder == n + 1 && DID(HAND, n) || holder == 0) || BREAK == NOTED_LATE && state == running ->
			if :: holder == n + 1 -> SEEN :: else fi;
			if :: BREAK != SESSION_KEPT -> holder = 0 :: else fi;
			if :: !node[n].down -> node[n].does = noted :: skip fi /* the answer is lost */
		:: else -> forget(n)
		fi }
	:: atomic { !node[n].down && node[n].does == noted && (!node[n].late || BREAK == SENT_LATE) && BREAK != SENT_FIRST ->
		send(n);
		if :: BREAK == SENT_AGAIN :: else -> forget(n) fi }
	:: atomic { node[n].does == noted -> forget(n) }
	:: atomic { node[n].does == noted -> node[n].late = true }
	/* What the session holds and the process does not know is given back. */
	:: atomic { !node[n].down && (node[n].does == idle || BREAK == GIVEN_BACK) && state == running && (holder == n + 1 || BREAK == GIVEN_BACK && holder == 0) && DID(RELEASE, n) ->
		SEEN;
		CHECK(!request[token] && !working[token] && !report[token]); /* nothing that was sent is given back */
		state = ready; holder = 0; token = 0 }
	:: atomic { !node[n].down && (deaths < DEATHS || REPLAYED) -> if :: REPLAYED :: else -> deaths++ fi; node[n].down = true }
	:: atomic { node[n].down -> node[n].down = false; if :: node[n].does == asked :: node[n].does != asked -> forget(n) fi }
	/* Its session is silent: another node declares a loss. */
	:: atomic { state == running && holder == n + 1 && node[n].down && (DID(LOSE, n) || DID(FAIL, n)) ->
		SEEN;
		CHECK(!request[token] && !working[token] && !report[token]); /* no node declares lost what a service does */
		end(lost) }
	od
}

proctype service(byte t) {
	do
	:: atomic { request[t] ->
		if :: BREAK == SENT_AGAIN :: else -> request[t] = false fi;
		if
		:: refused[t]
		:: !refused[t] ->
			CHECK(!(begun & (1 << attemptOf[t]))); /* started once */
			begun = begun | (1 << attemptOf[t]);
			CHECK(!working[1] && !working[2] && !working[3]); /* overlap */
			working[t] = true
		fi }
	:: atomic { request[t] -> request[t] = false /* it never arrives */ }
	:: atomic { refused[t] -> refused[t] = false /* a restart has forgotten it */ }
	:: atomic { working[t] -> working[t] = false; report[t] = true; if :: result[t] = succeeded :: result[t] = failed fi }
	/* Its report reaches the store, is repeated if no answer comes, or never comes. */
	:: atomic { report[t] ->
		if
		:: state == running && (token == t || BREAK == ANY_TOKEN) && holder == 0 && (result[t] == succeeded && DID(SUCCEED, 0) || result[t] == failed && DID(FAIL, 0)) ->
			SEEN;
			CHECK(token == t); /* a result belongs to its claim */
			end(result[t])
		:: else
		fi;
		if :: acknowledged = acknowledged || (outcome == succeeded && result[t] == succeeded); report[t] = false :: skip fi }
	:: atomic { report[t] -> report[t] = false }
	od
}

/* It ends what takes too long, which is longer than a node may wait before it sends, and a request may be on its
 * way. The service is told first. */
proctype keeper() {
	byte n;
	do
	:: atomic { state == running && holder == 0 && token > 0 && !request[token] && DID(TIME_OUT, 0) ->
		n = 0;
		do :: n < NODES && !(node[n].does == noted && node[n].token == token && !node[n].late) -> n++ :: else -> break od;
		if
		:: n == NODES ->
			if :: BREAK != ENDED_UNTOLD -> refused[token] = true; working[token] = false; report[token] = false :: else fi;
			SEEN; end(timedOut)
		:: else
		fi; n = 0 }
	od
}

/* Nothing acknowledged is lost. */
proctype monitor() {
	do
	:: atomic { !REPLAYED && acknowledged && !(state == done && outcome == succeeded) -> assert(false) }
	od
}

#ifdef REPLAY
/* The trace is one of the model if this fails. */
proctype replayed() { nextKind == 0 -> assert(false) }
#endif

init {
	atomic {
		byte n;
		c_code { now.BREAK = number("FAULT"); now.DEATHS = number("DEATHS"); }
#ifdef REPLAY
		c_code { now.pos = begins[number("TRACE")]; now.last = begins[number("TRACE") + 1]; look(); }
#endif
		state = ready; outcome = open;
		n = 0;
		do :: n < NODES -> node[n].does = idle; run worker(n); n++ :: else -> break od;
		n = 1;
		do :: n <= TOKENS -> result[n] = open; run service(n); n++ :: else -> break od;
		run keeper(); run monitor();
#ifdef REPLAY
		run replayed();
#endif
		n = 0
	}
}
