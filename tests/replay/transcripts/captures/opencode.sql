CREATE TABLE `session` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `workspace_id` text,
          `parent_id` text,
          `slug` text NOT NULL,
          `directory` text NOT NULL,
          `path` text,
          `title` text NOT NULL,
          `version` text NOT NULL,
          `share_url` text,
          `summary_additions` integer,
          `summary_deletions` integer,
          `summary_files` integer,
          `summary_diffs` text,
          `metadata` text,
          `cost` real DEFAULT 0 NOT NULL,
          `tokens_input` integer DEFAULT 0 NOT NULL,
          `tokens_output` integer DEFAULT 0 NOT NULL,
          `tokens_reasoning` integer DEFAULT 0 NOT NULL,
          `tokens_cache_read` integer DEFAULT 0 NOT NULL,
          `tokens_cache_write` integer DEFAULT 0 NOT NULL,
          `revert` text,
          `permission` text,
          `agent` text,
          `model` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_compacting` integer,
          `time_archived` integer,
          CONSTRAINT `fk_session_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
CREATE INDEX `session_project_idx` ON `session` (`project_id`);
CREATE INDEX `session_workspace_idx` ON `session` (`workspace_id`);
CREATE INDEX `session_parent_idx` ON `session` (`parent_id`);
CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
CREATE INDEX `message_session_time_created_id_idx` ON `message` (`session_id`,`time_created`,`id`);
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
CREATE INDEX `part_message_id_id_idx` ON `part` (`message_id`,`id`);
CREATE INDEX `part_session_idx` ON `part` (`session_id`);
INSERT INTO "message" VALUES('msg_216cd5cca001yt6WZ9XOeKELBg','ses_de932a390ffedVR7PZukgywp45',1795678887114,1795678890985,'{"role":"user","time":{"created":1795678887114},"agent":"build","model":{"providerID":"local","modelID":"scripted-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_216cd6228001Q7J8yG5GrMgbTK','ses_de932a390ffedVR7PZukgywp45',1795678888488,1795678889868,'{"parentID":"msg_216cd5cca001yt6WZ9XOeKELBg","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/app","root":"/"},"cost":0,"tokens":{"total":15,"input":10,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted-model","providerID":"local","time":{"created":1795678888488,"completed":1795678889867},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_216cd6791001I2zAaSWgcyS3LO','ses_de932a390ffedVR7PZukgywp45',1795678889873,1795678890061,'{"parentID":"msg_216cd5cca001yt6WZ9XOeKELBg","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/app","root":"/"},"cost":0,"tokens":{"total":25,"input":20,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted-model","providerID":"local","time":{"created":1795678889873,"completed":1795678890060},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_216cd6852001Cm1wfDCG0i1ZMs','ses_de932a390ffedVR7PZukgywp45',1795678890066,1795678890237,'{"parentID":"msg_216cd5cca001yt6WZ9XOeKELBg","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/app","root":"/"},"cost":0,"tokens":{"total":35,"input":30,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted-model","providerID":"local","time":{"created":1795678890066,"completed":1795678890236},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_216cd6900001Y6xHK7oBSW913q','ses_de932a390ffedVR7PZukgywp45',1795678890240,1795678890384,'{"parentID":"msg_216cd5cca001yt6WZ9XOeKELBg","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/app","root":"/"},"cost":0,"tokens":{"total":45,"input":40,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted-model","providerID":"local","time":{"created":1795678890240,"completed":1795678890382},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_216cd6995001lZCaqR31dCtB3N','ses_de932a390ffedVR7PZukgywp45',1795678890389,1795678890501,'{"parentID":"msg_216cd5cca001yt6WZ9XOeKELBg","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/app","root":"/"},"cost":0,"tokens":{"total":55,"input":50,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted-model","providerID":"local","time":{"created":1795678890389,"completed":1795678890500},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_216cd6a0a001M1Rm3bJZ19JtTK','ses_de932a390ffedVR7PZukgywp45',1795678890506,1795678890959,'{"parentID":"msg_216cd5cca001yt6WZ9XOeKELBg","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/app","root":"/"},"cost":0,"tokens":{"total":65,"input":60,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted-model","providerID":"local","time":{"created":1795678890506,"completed":1795678890958},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_216cd6a740014RxHn2Z6u40jyG','ses_de9329597ffePTPEb3KKwnJzQe',1795678890613,1795678890977,'{"role":"user","time":{"created":1795678890613},"agent":"general","model":{"providerID":"local","modelID":"scripted-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_216cd6a94001nlAcsbsyeS45UP','ses_de9329597ffePTPEb3KKwnJzQe',1795678890644,1795678890751,'{"parentID":"msg_216cd6a740014RxHn2Z6u40jyG","role":"assistant","mode":"general","agent":"general","path":{"cwd":"/app","root":"/"},"cost":0,"tokens":{"total":15,"input":10,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted-model","providerID":"local","time":{"created":1795678890644,"completed":1795678890750},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_216cd6b01001w37kO1IJqfDfoU','ses_de9329597ffePTPEb3KKwnJzQe',1795678890753,1795678890869,'{"parentID":"msg_216cd6a740014RxHn2Z6u40jyG","role":"assistant","mode":"general","agent":"general","path":{"cwd":"/app","root":"/"},"cost":0,"tokens":{"total":25,"input":20,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted-model","providerID":"local","time":{"created":1795678890753,"completed":1795678890868},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_216cd6b77001b5eFdjwQoti4XA','ses_de9329597ffePTPEb3KKwnJzQe',1795678890871,1795678890946,'{"parentID":"msg_216cd6a740014RxHn2Z6u40jyG","role":"assistant","mode":"general","agent":"general","path":{"cwd":"/app","root":"/"},"cost":0,"tokens":{"total":35,"input":30,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted-model","providerID":"local","time":{"created":1795678890871,"completed":1795678890946},"finish":"stop"}');
INSERT INTO "message" VALUES('msg_216cd6bd1001rPwCPEM13Pgcm7','ses_de932a390ffedVR7PZukgywp45',1795678890961,1795678891087,'{"parentID":"msg_216cd5cca001yt6WZ9XOeKELBg","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/app","root":"/"},"cost":0,"tokens":{"total":75,"input":70,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"scripted-model","providerID":"local","time":{"created":1795678890961,"completed":1795678891086},"finish":"stop"}');
INSERT INTO "part" VALUES('prt_216cd5cde001O4h8wzj7iKm201','msg_216cd5cca001yt6WZ9XOeKELBg','ses_de932a390ffedVR7PZukgywp45',1795678888468,1795678888470,'{"type":"text","text":"\"find it\""}');
INSERT INTO "part" VALUES('prt_216cd66c0001nFB5B6Hn5j5Go7','msg_216cd6228001Q7J8yG5GrMgbTK','ses_de932a390ffedVR7PZukgywp45',1795678889664,1795678889666,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_216cd66c3001c2bvMr9FXKt34Y','msg_216cd6228001Q7J8yG5GrMgbTK','ses_de932a390ffedVR7PZukgywp45',1795678889668,1795678889693,'{"type":"text","text":"Let me look.","time":{"start":1795678889667,"end":1795678889692}}');
INSERT INTO "part" VALUES('prt_216cd66c9001ATLIfUm8WKXWIx','msg_216cd6228001Q7J8yG5GrMgbTK','ses_de932a390ffedVR7PZukgywp45',1795678889673,1795678889853,'{"type":"tool","tool":"bash","callID":"call_1","state":{"status":"completed","input":{"command":"cat missing.txt","description":"Look"},"output":"cat: missing.txt: No such file or directory\n","metadata":{"output":"cat: missing.txt: No such file or directory\n","exit":1,"truncated":false},"title":"cat missing.txt","time":{"start":1795678889682,"end":1795678889851}}}');
INSERT INTO "part" VALUES('prt_216cd6781001WhiKbHd1PDehJe','msg_216cd6228001Q7J8yG5GrMgbTK','ses_de932a390ffedVR7PZukgywp45',1795678889857,1795678889859,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":15,"input":10,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}');
INSERT INTO "part" VALUES('prt_216cd67fd001Nw3cULyZBHse0v','msg_216cd6791001I2zAaSWgcyS3LO','ses_de932a390ffedVR7PZukgywp45',1795678889981,1795678889983,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_216cd68010010u9DMMI3OLNdMg','msg_216cd6791001I2zAaSWgcyS3LO','ses_de932a390ffedVR7PZukgywp45',1795678889985,1795678890019,'{"type":"text","text":"Let me look.","time":{"start":1795678889985,"end":1795678890017}}');
INSERT INTO "part" VALUES('prt_216cd6804001i0XxMJzmQS0jBl','msg_216cd6791001I2zAaSWgcyS3LO','ses_de932a390ffedVR7PZukgywp45',1795678889988,1795678890049,'{"type":"tool","tool":"bash","callID":"call_2","state":{"status":"completed","input":{"command":"cat missing.txt","description":"Look"},"output":"cat: missing.txt: No such file or directory\n","metadata":{"output":"cat: missing.txt: No such file or directory\n","exit":1,"truncated":false},"title":"cat missing.txt","time":{"start":1795678889998,"end":1795678890048}}}');
INSERT INTO "part" VALUES('prt_216cd68440015nLrx4DuVUZQ36','msg_216cd6791001I2zAaSWgcyS3LO','ses_de932a390ffedVR7PZukgywp45',1795678890052,1795678890054,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":25,"input":20,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}');
INSERT INTO "part" VALUES('prt_216cd6890001sGFEkckrfKzWG7','msg_216cd6852001Cm1wfDCG0i1ZMs','ses_de932a390ffedVR7PZukgywp45',1795678890129,1795678890130,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_216cd68930010otEByY9jUQeRj','msg_216cd6852001Cm1wfDCG0i1ZMs','ses_de932a390ffedVR7PZukgywp45',1795678890131,1795678890146,'{"type":"text","text":"Let me look.","time":{"start":1795678890131,"end":1795678890145}}');
INSERT INTO "part" VALUES('prt_216cd6896001hrPdYkZpk5qULs','msg_216cd6852001Cm1wfDCG0i1ZMs','ses_de932a390ffedVR7PZukgywp45',1795678890134,1795678890230,'{"type":"tool","tool":"bash","callID":"call_3","state":{"status":"completed","input":{"command":"cat missing.txt","description":"Look"},"output":"cat: missing.txt: No such file or directory\n","metadata":{"output":"cat: missing.txt: No such file or directory\n","exit":1,"truncated":false},"title":"cat missing.txt","time":{"start":1795678890139,"end":1795678890229}}}');
INSERT INTO "part" VALUES('prt_216cd68f7001zFMt2RLSAkkNNh','msg_216cd6852001Cm1wfDCG0i1ZMs','ses_de932a390ffedVR7PZukgywp45',1795678890232,1795678890233,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":35,"input":30,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}');
INSERT INTO "part" VALUES('prt_216cd69480012stvsr8GjZGIAd','msg_216cd6900001Y6xHK7oBSW913q','ses_de932a390ffedVR7PZukgywp45',1795678890312,1795678890314,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_216cd694b00115DnATM666dLS3','msg_216cd6900001Y6xHK7oBSW913q','ses_de932a390ffedVR7PZukgywp45',1795678890315,1795678890328,'{"type":"text","text":"Let me look.","time":{"start":1795678890315,"end":1795678890327}}');
INSERT INTO "part" VALUES('prt_216cd694d001TUFE4npMp4hPI3','msg_216cd6900001Y6xHK7oBSW913q','ses_de932a390ffedVR7PZukgywp45',1795678890317,1795678890371,'{"type":"tool","tool":"read","callID":"call_4","state":{"status":"completed","input":{"filePath":"/app/note.txt"},"output":"<path>/app/note.txt</path>\n<type>file</type>\n<content>\n1: hello there\n\n(End of file - total 1 lines)\n</content>","metadata":{"preview":"hello there","truncated":false,"loaded":[],"display":{"type":"file","path":"/app/note.txt","text":"hello there","lineStart":1,"lineEnd":1,"totalLines":1,"truncated":false}},"title":"/app/note.txt","time":{"start":1795678890324,"end":1795678890369}}}');
INSERT INTO "part" VALUES('prt_216cd6986001WnRhGNJ9Hu8wll','msg_216cd6900001Y6xHK7oBSW913q','ses_de932a390ffedVR7PZukgywp45',1795678890374,1795678890376,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":45,"input":40,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}');
INSERT INTO "part" VALUES('prt_216cd69db00170yt7uVFMzbSxQ','msg_216cd6995001lZCaqR31dCtB3N','ses_de932a390ffedVR7PZukgywp45',1795678890460,1795678890461,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_216cd69de001hUKUydH0Fv76nm','msg_216cd6995001lZCaqR31dCtB3N','ses_de932a390ffedVR7PZukgywp45',1795678890463,1795678890479,'{"type":"text","text":"Let me look.","time":{"start":1795678890462,"end":1795678890478}}');
INSERT INTO "part" VALUES('prt_216cd69e20012Lgv3tjKXXWQPf','msg_216cd6995001lZCaqR31dCtB3N','ses_de932a390ffedVR7PZukgywp45',1795678890466,1795678890488,'{"type":"tool","tool":"read","callID":"call_5","state":{"status":"error","input":{"filePath":"/app/nope.txt"},"error":"File not found: /app/nope.txt","time":{"start":1795678890474,"end":1795678890487}}}');
INSERT INTO "part" VALUES('prt_216cd69fb001uMQ8J0jFoChlV2','msg_216cd6995001lZCaqR31dCtB3N','ses_de932a390ffedVR7PZukgywp45',1795678890491,1795678890493,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":55,"input":50,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}');
INSERT INTO "part" VALUES('prt_216cd6a56001k0jatTXPxLEJ0A','msg_216cd6a0a001M1Rm3bJZ19JtTK','ses_de932a390ffedVR7PZukgywp45',1795678890582,1795678890583,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_216cd6a58001msEU9sU8cVVA9a','msg_216cd6a0a001M1Rm3bJZ19JtTK','ses_de932a390ffedVR7PZukgywp45',1795678890585,1795678890638,'{"type":"text","text":"Let me look.","time":{"start":1795678890585,"end":1795678890636}}');
INSERT INTO "part" VALUES('prt_216cd6a5c0016EBlq8QVnyOGm4','msg_216cd6a0a001M1Rm3bJZ19JtTK','ses_de932a390ffedVR7PZukgywp45',1795678890589,1795678890954,'{"type":"tool","tool":"task","callID":"call_6","state":{"status":"completed","input":{"description":"sub task","prompt":"sub task","subagent_type":"general"},"output":"<task id=\"ses_de9329597ffePTPEb3KKwnJzQe\" state=\"completed\">\n<task_result>\nI found nothing.\n</task_result>\n</task>","metadata":{"parentSessionId":"ses_de932a390ffedVR7PZukgywp45","sessionId":"ses_de9329597ffePTPEb3KKwnJzQe","model":{"modelID":"scripted-model","providerID":"local"},"truncated":false},"title":"sub task","time":{"start":1795678890605,"end":1795678890953}}}');
INSERT INTO "part" VALUES('prt_216cd6a7a001nIwWsJ4FT1WT5W','msg_216cd6a740014RxHn2Z6u40jyG','ses_de9329597ffePTPEb3KKwnJzQe',1795678890621,1795678890622,'{"type":"text","text":"sub task"}');
INSERT INTO "part" VALUES('prt_216cd6acf001w56oF0VhRXTbgo','msg_216cd6a94001nlAcsbsyeS45UP','ses_de9329597ffePTPEb3KKwnJzQe',1795678890704,1795678890705,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_216cd6ad2001gY58mqQVXtvKPt','msg_216cd6a94001nlAcsbsyeS45UP','ses_de9329597ffePTPEb3KKwnJzQe',1795678890706,1795678890718,'{"type":"text","text":"Let me look.","time":{"start":1795678890706,"end":1795678890718}}');
INSERT INTO "part" VALUES('prt_216cd6ad4001v9morw4W3DQvGs','msg_216cd6a94001nlAcsbsyeS45UP','ses_de9329597ffePTPEb3KKwnJzQe',1795678890708,1795678890744,'{"type":"tool","tool":"bash","callID":"call_1","state":{"status":"completed","input":{"command":"echo inside","description":"Look"},"output":"inside\n","metadata":{"output":"inside\n","exit":0,"truncated":false},"title":"echo inside","time":{"start":1795678890712,"end":1795678890744}}}');
INSERT INTO "part" VALUES('prt_216cd6afa0013RCesMqAEl3KoJ','msg_216cd6a94001nlAcsbsyeS45UP','ses_de9329597ffePTPEb3KKwnJzQe',1795678890746,1795678890746,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":15,"input":10,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}');
INSERT INTO "part" VALUES('prt_216cd6b43001iNwit3QyrCFBPl','msg_216cd6b01001w37kO1IJqfDfoU','ses_de9329597ffePTPEb3KKwnJzQe',1795678890831,1795678890832,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_216cd6b51001YBc6L2deboCpqV','msg_216cd6b01001w37kO1IJqfDfoU','ses_de9329597ffePTPEb3KKwnJzQe',1795678890833,1795678890846,'{"type":"text","text":"Let me look.","time":{"start":1795678890833,"end":1795678890845}}');
INSERT INTO "part" VALUES('prt_216cd6b53001VUeN3uMgxjGPoU','msg_216cd6b01001w37kO1IJqfDfoU','ses_de9329597ffePTPEb3KKwnJzQe',1795678890835,1795678890862,'{"type":"tool","tool":"bash","callID":"call_2","state":{"status":"completed","input":{"command":"echo inside","description":"Look"},"output":"inside\n","metadata":{"output":"inside\n","exit":0,"truncated":false},"title":"echo inside","time":{"start":1795678890839,"end":1795678890862}}}');
INSERT INTO "part" VALUES('prt_216cd6b70001V4diPGed91krYG','msg_216cd6b01001w37kO1IJqfDfoU','ses_de9329597ffePTPEb3KKwnJzQe',1795678890864,1795678890865,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":25,"input":20,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}');
INSERT INTO "part" VALUES('prt_216cd6bb8001OZd0f09aU1hDeQ','msg_216cd6b77001b5eFdjwQoti4XA','ses_de9329597ffePTPEb3KKwnJzQe',1795678890936,1795678890937,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_216cd6bba0017EfZYyKjfhJV6q','msg_216cd6b77001b5eFdjwQoti4XA','ses_de9329597ffePTPEb3KKwnJzQe',1795678890938,1795678890941,'{"type":"text","text":"I found nothing.","time":{"start":1795678890938,"end":1795678890940}}');
INSERT INTO "part" VALUES('prt_216cd6bbe001kYxWh3IKQHcQnF','msg_216cd6b77001b5eFdjwQoti4XA','ses_de9329597ffePTPEb3KKwnJzQe',1795678890942,1795678890943,'{"reason":"stop","type":"step-finish","tokens":{"total":35,"input":30,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}');
INSERT INTO "part" VALUES('prt_216cd6bcb001hi4mNks9m2H5ol','msg_216cd6a0a001M1Rm3bJZ19JtTK','ses_de932a390ffedVR7PZukgywp45',1795678890955,1795678890956,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":65,"input":60,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}');
INSERT INTO "part" VALUES('prt_216cd6c29001zoHlePgYQyisKv','msg_216cd6bd1001rPwCPEM13Pgcm7','ses_de932a390ffedVR7PZukgywp45',1795678891049,1795678891053,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_216cd6c43001yIjVhf9Lg8zR9L','msg_216cd6bd1001rPwCPEM13Pgcm7','ses_de932a390ffedVR7PZukgywp45',1795678891075,1795678891079,'{"type":"text","text":"I found nothing.","time":{"start":1795678891075,"end":1795678891078}}');
INSERT INTO "part" VALUES('prt_216cd6c49001Y8TAPD4Ry2DVqW','msg_216cd6bd1001rPwCPEM13Pgcm7','ses_de932a390ffedVR7PZukgywp45',1795678891081,1795678891082,'{"reason":"stop","type":"step-finish","tokens":{"total":75,"input":70,"output":5,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0}');
INSERT INTO "session" VALUES('ses_de932a390ffedVR7PZukgywp45','global',NULL,NULL,'witty-planet','/app','/app','I found nothing.','1.18.33',NULL,0,0,0,NULL,NULL,0.0,280,35,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"scripted-model","providerID":"local","variant":"default"}',1795678887023,1795678891122,NULL,NULL);
INSERT INTO "session" VALUES('ses_de9329597ffePTPEb3KKwnJzQe','global',NULL,'ses_de932a390ffedVR7PZukgywp45','calm-moon','/app','/app','sub task (@general subagent)','1.18.33',NULL,0,0,0,NULL,NULL,0.0,60,15,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"},{"permission":"task","pattern":"*","action":"deny"}]','general','{"id":"scripted-model","providerID":"local","variant":"default"}',1795678890600,1795678890971,NULL,NULL);
